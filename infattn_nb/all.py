"""Everything public, in one line: `from infattn_nb.all import *`."""
from .functions import *
from .hierarchical import *
from .netsor import *
from .limit import *
from .finite import *
from .attention import *
from .divergence import *
from .experiments import *
