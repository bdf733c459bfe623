"""http_callback: a Hermes plugin that delivers the agent's answer as a signed POST, once.

An island: it is copied into a Hermes home and uses the standard library and what Hermes ships.
Hermes calls `register`; nothing else here is public.
"""

import dataclasses
import os
from typing import Any

from .config import ALIAS, HOME_NAMES, PLATFORM
from .transport import available

__version__ = "1.0.0"

HINT = (
    "Your answer is delivered to a backend by HTTP and usually shown to its end customer. "
    "Write only the text that the customer should read: no notes about tools, files or yourself."
)


def register(ctx: Any) -> None:
    """Register the platform under its name and an alias, a command and a hook."""
    for name, label in ((PLATFORM, "HTTP callback"), (ALIAS, "HTTP callback (second name)")):
        ctx.register_platform(**_platform(name, label))
    if hasattr(ctx, "register_hook"):
        ctx.register_hook("pre_gateway_dispatch", _before_dispatch)
        ctx.register_hook("on_session_end", _after_turn)
    if hasattr(ctx, "register_cli_command"):
        from . import cli

        ctx.register_cli_command(
            name="callback",
            help="Look after the callbacks that http_callback delivers",
            setup_fn=cli.add_arguments,
            handler_fn=cli.run_and_exit,
            description="Status, replay and settings of the http_callback outbox",
        )


def _platform(name: str, label: str) -> dict[str, Any]:
    entry = {
        "is_connected": lambda config: True,
        "pii_safe": True,
        "emoji": "↩️",
        "allow_update_command": False,
        "platform_hint": HINT,
        "max_message_length": 0,
        "cron_deliver_env_var": HOME_NAMES[0],
        "env_enablement_fn": _seed,
        "standalone_sender_fn": _standalone,
        "parse_target_ref_fn": _parse_target,
        "validate_target_ref_fn": _validate_target,
    }
    return {
        "name": name,
        "label": label,
        "adapter_factory": lambda config: _adapter(config, name),
        "check_fn": available,
        "validate_config": lambda config: True,
        "required_env": [],
        "install_hint": "http_callback needs aiohttp or httpx; both come with Hermes",
        **{key: value for key, value in entry.items() if key in _known_fields(entry)},
    }


def _known_fields(entry: dict[str, Any]) -> set[str]:
    # Unknown fields are refused by Hermes; they differ between its versions.
    try:
        from gateway.platform_registry import PlatformEntry
    except ImportError:
        return set(entry)
    return {field.name for field in dataclasses.fields(PlatformEntry)}


def _adapter(config: Any, name: str) -> Any:
    from .adapter import HttpCallbackAdapter

    return HttpCallbackAdapter(config, name)


async def _standalone(pconfig: Any, chat_id: str, message: str, **options: Any) -> dict[str, Any]:
    from . import standalone

    return await standalone.send(pconfig, chat_id, message, **options)


def _before_dispatch(**facts: Any) -> None:
    from . import webhook_bridge

    webhook_bridge.before_dispatch(**facts)


def _after_turn(**facts: Any) -> None:
    from . import webhook_bridge

    webhook_bridge.after_turn(**facts)


def _seed() -> dict[str, Any] | None:
    """Let Hermes know the home target that the environment names."""
    url = next((os.environ[name] for name in HOME_NAMES if os.environ.get(name)), "")
    return {"home_channel": {"chat_id": url, "name": "Callback"}} if url else None


def _parse_target(text: str) -> tuple[str, None] | None:
    return (text, None) if text.startswith(("http://", "https://", "@")) else None


def _validate_target(text: str) -> bool | str:
    from .home import hermes_home, load_settings
    from .targets import resolve

    try:
        resolve(text, load_settings(hermes_home()))
    except ValueError as error:
        return str(error)
    return True


__all__ = ["__version__", "register"]
