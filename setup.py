"""Packaging: the daemon, the sample plugins, and its files for /etc and systemd."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent


def version() -> str:
    for line in (HERE / "ovirt_scheduler" / "__init__.py").read_text("utf-8").splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise RuntimeError("ovirt_scheduler/__init__.py has no __version__")


setup(
    name="ovirt-scheduler",
    version=version(),
    description="External scheduler for oVirt: filters, cost functions and balances in Python",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.9",
    # What lies at the top of the project, and within the package where it is installed: the
    # samples, and the files that ovirt-scheduler setup puts into their places.
    packages=[
        *find_packages(include=["ovirt_scheduler", "ovirt_scheduler.*"]),
        "ovirt_scheduler.plugins",
        "ovirt_scheduler.etc",
        "ovirt_scheduler.systemd",
    ],
    package_dir={
        "ovirt_scheduler.plugins": "plugins",
        "ovirt_scheduler.etc": "etc",
        "ovirt_scheduler.systemd": "systemd",
    },
    package_data={
        "ovirt_scheduler": ["py.typed"],
        "ovirt_scheduler.command": ["plugin_templates/*"],
        "ovirt_scheduler.server.pages": ["templates/*"],
        "ovirt_scheduler.workbench": ["report_templates/*"],
        "ovirt_scheduler.etc": ["*.conf", "plugins/*.conf", "logrotate.d/*"],
        "ovirt_scheduler.systemd": ["*.service", "*/*.conf"],
    },
    data_files=[
        ("share/bash-completion/completions", ["completion/bash/ovirt-scheduler"]),
        ("share/zsh/site-functions", ["completion/zsh/_ovirt-scheduler"]),
    ]
    + [
        (f"share/man/man{section}", [f"docs/man/{page}.{section}"])
        for page, section in (("ovirt-scheduler", 1), ("ovirt-scheduler.conf", 5))
    ]
    + [
        (
            f"share/doc/ovirt-scheduler/{within}",
            sorted(
                str(file.relative_to(HERE))
                for ending in ("md", "png", "svg", "xsd", "xml", "json", "yml")
                for file in (HERE / within).glob(f"*.{ending}")
            ),
        )
        # The manual, and what it names.
        for within in (".", "docs", "demo", "packaging/grafana", "packaging/prometheus")
    ],
    install_requires=[
        "ovirt-engine-sdk-python>=4.4,<5",
        "lxml>=4.6.5",
        "pycurl>=7.43.0.2",
        "pyOpenSSL>=21",
        "cryptography>=36",
        "configobj>=5.0.6,<6",
        "argcomplete>=1.12",
        "jinja2>=2.10",
        "prometheus_client>=0.6",
        "pyflakes>=2.2",
    ],
    extras_require={
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.2",
            "hypothesis>=6",
            "selenium>=4.10",
            "setuptools>=70.1",  # the first that makes wheels by itself
        ],
        "manual": ["mkdocs>=1.6,<2"],
        "lint": ["ruff>=0.9", "mypy>=1.11", "import-linter>=2", "types-setuptools"],
    },
    entry_points={
        "console_scripts": ["ovirt-scheduler = ovirt_scheduler.__main__:main"],
        "pytest11": ["ovirt_scheduler.testing = ovirt_scheduler.testing"],
    },
    classifiers=[
        "Environment :: No Input/Output (Daemon)",
        "Intended Audience :: System Administrators",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
    ],
)
