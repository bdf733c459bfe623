"""The platform adapter that Hermes loads: `send()` stores, the worker delivers.

Imported only inside Hermes.
"""

import asyncio
import logging
from typing import Any

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, SendResult

from . import media, webhook_bridge
from .config import PLATFORM, SettingsError
from .intake import Call
from .outbox import Receipt
from .service import Service, service_for
from .store import OutboxUnavailable
from .targets import file_rules, safe

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 30


class HttpCallbackAdapter(BasePlatformAdapter):  # type: ignore[misc]
    """A send-only platform. A `chat_id` is the callback URL, or `@name` of a named endpoint."""

    MAX_MESSAGE_LENGTH = NO_LIMIT
    splits_long_messages = True  # never cut, never a footer with a path of this machine
    supports_async_delivery = True
    supports_code_blocks = True
    interactive_resume = False

    def __init__(self, config: PlatformConfig, name: str = PLATFORM) -> None:
        """Take Hermes' configuration of the platform; nothing is opened before `connect`."""
        super().__init__(config, Platform(name))
        self._extra = dict(getattr(config, "extra", None) or {})
        self._service: Service | None = None

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start delivering. False, with the reason shown by Hermes, when the settings are wrong."""
        if self._service is None:
            try:
                service = service_for(extra=self._extra)
            except SettingsError as error:
                logger.error("http_callback: %s", error)  # noqa: TRY400
                self._set_fatal_error("settings", str(error), retryable=True)
                return False
            service.start()
            self._service = service
            service.intake.bridged = webhook_bridge.install(getattr(self, "gateway_runner", None))
            if service.settings.unknown:
                logger.warning(
                    "http_callback: unknown settings: %s", ", ".join(service.settings.unknown)
                )
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        """Stop delivering; what is owed stays in the outbox. May be called more than once."""
        service, self._service = self._service, None
        if service is not None:
            await asyncio.to_thread(service.stop)
        self._mark_disconnected()

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Describe a callback target."""
        return {"name": safe(chat_id), "type": "dm"}

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """Store the text durably; success means that it will be delivered or shown as dead."""
        return await self._store(chat_id, content, reply_to, metadata)

    async def _store(
        self,
        chat_id: str,
        content: str | None,
        reply_to: str | None,
        metadata: dict[str, Any] | None,
        attachments: tuple[dict[str, Any], ...] = (),
    ) -> SendResult:
        service = self._service
        if service is None:
            return SendResult(success=False, error="http_callback is not started", retryable=True)
        scene = webhook_bridge.scene()
        call = Call(
            chat_id=chat_id or scene.url,
            content=content or "",
            reply_to=reply_to,
            metadata=dict(metadata or {}),
            origin=scene.origin,
            attachments=attachments,
            facts=scene.facts,
        )
        try:
            receipt = await service.accept(call)
        except OutboxUnavailable as error:
            return SendResult(
                success=False, error=str(error), retryable=True, error_kind="transient"
            )
        return self._result(receipt, call, service)

    def _result(self, receipt: Receipt, call: Call, service: Service) -> SendResult:
        # On the agent's path a failure makes Hermes send the text again, with a prefix: there a
        # refusal is a stored fact and a log line. Elsewhere a person reads the error.
        agent = call.origin is not None or not (
            service.intake.bridged or call.metadata.get("job_id")
        )
        if receipt.state in ("rejected", "dead") and not agent:
            return SendResult(success=False, error=receipt.reason, error_kind="bad_format")
        return SendResult(success=True, message_id=receipt.id)

    async def send_typing(self, chat_id: str, metadata: dict[str, Any] | None = None) -> None:
        """Do nothing: the typing signal belongs to the webhook event, see `typing_signal`."""

    async def stop_typing(self, chat_id: str) -> None:
        """Do nothing."""

    async def _file(
        self,
        chat_id: str,
        path: str,
        kind: str,
        caption: str | None,
        metadata: dict[str, Any] | None,
    ) -> SendResult:
        if self._service is None:
            return await self._store(chat_id, caption, None, metadata)
        rules = file_rules(chat_id or webhook_bridge.scene().url, self._service.settings)
        item = await asyncio.to_thread(media.of_file, path, kind, **rules)
        return await self._store(chat_id, caption, None, metadata, (item,))

    async def send_image(
        self,
        chat_id: str,
        image_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """Store an attachment that names the image's URL."""
        if image_url.startswith("file://"):
            return await self._file(
                chat_id, media.local_path(image_url), "image", caption, metadata
            )
        return await self._store(
            chat_id, caption, reply_to, metadata, (media.of_url(image_url, "image"),)
        )

    async def send_animation(
        self, chat_id: str, animation_url: str, caption: str | None = None, **options: Any
    ) -> SendResult:
        """Store an attachment that names the animation's URL."""
        item = media.of_url(animation_url, "animation")
        return await self._store(chat_id, caption, None, options.get("metadata"), (item,))

    async def send_image_file(
        self, chat_id: str, image_path: str, caption: str | None = None, **options: Any
    ) -> SendResult:
        """Store an attachment that describes the image."""
        return await self._file(chat_id, image_path, "image", caption, options.get("metadata"))

    async def send_voice(
        self, chat_id: str, audio_path: str, caption: str | None = None, **options: Any
    ) -> SendResult:
        """Store an attachment that describes the recording."""
        return await self._file(chat_id, audio_path, "voice", caption, options.get("metadata"))

    async def send_video(
        self, chat_id: str, video_path: str, caption: str | None = None, **options: Any
    ) -> SendResult:
        """Store an attachment that describes the film."""
        return await self._file(chat_id, video_path, "video", caption, options.get("metadata"))

    async def send_document(
        self, chat_id: str, file_path: str, caption: str | None = None, **options: Any
    ) -> SendResult:
        """Store an attachment that describes the file."""
        return await self._file(chat_id, file_path, "document", caption, options.get("metadata"))

    async def send_multiple_images(
        self,
        chat_id: str,
        images: list[tuple[str, str]],
        metadata: dict[str, Any] | None = None,
        human_delay: float = 0.0,
    ) -> SendResult:
        """Store one attachment row for each image."""
        result = SendResult(success=True)
        for url, alt in images:
            result = await self.send_image(chat_id, url, alt or None, None, metadata)
        return result
