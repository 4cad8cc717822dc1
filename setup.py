"""Reads everything that `settings.ini` knows, so that each fact of the package stands in one place."""
import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
parser = ConfigParser(delimiters=["="])
parser.read(here / "settings.ini", encoding="utf-8")
cfg = parser["DEFAULT"]
learning = cfg["learning_requirements"].split()
published = cfg.getboolean("published") # only then are there addresses
site = f"{cfg['doc_host']}{cfg['doc_baseurl']}"

def absolute(readme):
    "The README away from its repository: pages lead to the site, pictures and files to the code host."
    pages = re.sub(r"\]\(nbs/([\w/]+)\.ipynb", rf"]({site}/\1.html", readme)
    return re.sub(r"\]\((?!https?:|#)", rf"]({cfg['git_url']}/raw/{cfg['branch']}/", pages)

readme = (here / "README.md").read_text(encoding="utf-8")
addresses = dict(
    url=cfg["git_url"],
    author_email=cfg["author_email"],
    project_urls={"Documentation": site, "Changelog": f"{cfg['git_url']}/blob/{cfg['branch']}/CHANGELOG.md"},
)

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=absolute(readme) if published else readme,
    long_description_content_type="text/markdown",
    author=cfg["author"],
    keywords=cfg["keywords"],
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)),
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
    python_requires=f">={cfg['min_python']}",
    package_dir={"": "."}, # an editable install that type checkers resolve
    packages=find_packages(include=[cfg["lib_path"], f"{cfg['lib_path']}.*"]),
    package_data={cfg["lib_path"]: ["py.typed", "*.pyi", "*/*.pyi", "*.mplstyle", "initialisation/*.html", "initialisation/*.mplstyle", "huggingface/*.toml"]},
    install_requires=cfg["requirements"].split(),
    extras_require={"learning": learning, "dev": [*cfg["dev_requirements"].split(), *learning],
                    "torch": cfg["torch_requirements"].split(),
                    "docs": cfg["docs_requirements"].split(), "dask": cfg["dask_requirements"].split(),
                    "notebooks": [*cfg["notebooks_requirements"].split(), *learning]},
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
    **(addresses if published else {}),
)
