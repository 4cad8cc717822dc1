"""Everything public, in one line: `from infattn_nb.all import *`."""
from .functions import *
from .growth import *
from .sampling import BLOCK, draw, fold, seed_sequence
from .factors import narrow, psd_factor, wishart_factor
from .quadrature import dual_quadrature, gauss, jacobi, normal_nodes
from .mixture import *
from .rows import *
from .hierarchical import *
from .tokens import Tokens
from .attention import Attention
from .divergence import *
from .regimes import *
from .netsor import *
from .architectures import *
from .limit import *
from .finite import *
from .from_program import *
from .clt import *
from .theorem import *
from .proof import *
from .rates import *
from .robustness import *
from .transformer import *
from .length import *
from .learning import *
from .experiments import *
from .store import read_table, write_table
from .running import *
