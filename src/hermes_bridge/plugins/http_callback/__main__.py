"""Run the commands: `python -m ...plugins.http_callback`, or `python DIRECTORY` of a copy."""

import sys

if __package__:
    from .cli import main
else:
    import importlib.util
    from pathlib import Path

    _here = Path(__file__).resolve().parent
    _spec = importlib.util.spec_from_file_location(
        "http_callback_program", _here / "__init__.py", submodule_search_locations=[str(_here)]
    )
    if _spec is None or _spec.loader is None:
        raise SystemExit(f"{_here} is not a whole copy of the plugin")
    _package = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = _package
    _spec.loader.exec_module(_package)
    main = importlib.import_module("http_callback_program.cli").main

if __name__ == "__main__":
    sys.exit(main())
