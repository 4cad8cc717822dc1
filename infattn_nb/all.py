"""Everything public, in one line: `from infattn_nb.all import *`."""
from .functions import *
from .hierarchical import *
from .netsor import *
from .limit import *
from .finite import *
from .clt import *
from .attention import *
from .theorem import *
from .divergence import *
from .regimes import *
from .rates import *
from .robustness import *
from .experiments import *
