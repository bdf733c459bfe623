"""The gateways' side: connections, hellos, acks, idling, interrupts, declared policies."""

import logging

from hermes_bridge.connector.actions import Actions, shown
from hermes_bridge.connector.core.route import policies_of
from hermes_bridge.connector.core.session import HelloRefused, RelaySession
from hermes_bridge.connector.link import Link
from hermes_bridge.connector.state import State, logger
from hermes_bridge.contract import frames
from hermes_bridge.contract.descriptor import describe
from hermes_bridge.log import event
from hermes_bridge.web.websocket import DirectSocket


class Gateways:
    """All connections of gateways, and what their frames mean."""

    def __init__(self, state: State, actions: Actions) -> None:
        self._state, self._actions = state, actions
        self._numbers = 0

    def opened(self, session: RelaySession, socket: DirectSocket, base: str) -> Link:
        """A gateway's token was accepted: it has a connection, and no rights yet."""
        self._numbers += 1
        link = Link(self._numbers, session, socket, self._state.config.section.public_url or base)
        self._state.links[link.number] = link
        event(logger, "gateway.connected", link=link.number, gateway=shown(session.gateway_id))
        return link

    def closed(self, link: Link) -> None:
        """A connection is gone: what it did not acknowledge is owed again."""
        self._state.links.pop(link.number, None)
        for bot_id in link.session.bots:
            self._state.inbox.link_down(bot_id, link.number, self._state.clock.now())
        link.gone()
        event(logger, "gateway.gone", link=link.number, gateway=shown(link.session.gateway_id))
        self._state.settle()

    def frame(self, link: Link, line: str) -> None:
        """A connection sent one frame."""
        match frames.decode(line):
            case frames.Outbound() as outbound:
                self._actions.submit(link, outbound)
            case frames.InboundAck(buffer_id):
                self._acked(link, buffer_id)
            case frames.Hello(platform, bot_id):
                self._hello(link, platform, bot_id)
            case frames.GoingIdle():
                self._idle(link)
            case frames.Interrupt(session_key, _):
                self._interrupt(link, session_key)
            case frames.Ignored(kind):
                self._state.counts["frames.ignored"] += 1
                self._state.quiet.event("frame.ignored", shown(kind), link=link.number)

    def _hello(self, link: Link, platform: str, bot_id: str) -> None:
        state, now = self._state, self._state.clock.now()
        before = link.session.bots
        answer = link.session.hello(platform, bot_id, state.table)
        if isinstance(answer, HelloRefused):
            event(logger, "hello.refused", logging.WARNING, link=link.number,
                  gateway=shown(link.session.gateway_id), reason=answer.reason,
                  bot=shown(bot_id) if state.table.get(bot_id) else "(unknown)")  # fmt: skip
            link.write(frames.refusal(answer.reason))
            link.close(1002, f"hello rejected: {answer.reason}")
            for lost in before:
                state.inbox.link_down(lost, link.number, now)
        else:
            link.write(frames.descriptor(describe(state.platforms[platform].capabilities)))
            event(logger, "hello.accepted", link=link.number, bot=bot_id)
            self._supersede(link, bot_id)
            state.inbox.link_up(bot_id, link.number, now)
        self._state.settle()

    def _supersede(self, link: Link, bot_id: str) -> None:
        """The newest connection of a gateway wins; a half-open old one must not keep its mail."""
        for other in list(self._state.links.values()):
            older = other.number < link.number and not other.closing
            if older and bot_id in other.session.bots:
                other.close(1000, "superseded")
                for each in other.session.bots:
                    self._state.inbox.link_down(each, other.number, self._state.clock.now())

    def _acked(self, link: Link, buffer_id: str) -> None:
        if not (buffer_id.isascii() and buffer_id.isdigit() and len(buffer_id) < 19):
            return
        entry = self._state.inbox.entry(int(buffer_id))
        if entry is not None and link.session.may_use(entry.bot_id, self._state.table):
            self._state.inbox.acked(entry.id, self._state.clock.now())
            self._state.settle()

    def _idle(self, link: Link) -> None:
        link.write(frames.going_idle_ack())
        link.session.idle = True
        for bot_id in link.session.bots:
            self._state.inbox.link_down(bot_id, link.number, self._state.clock.now())
        event(logger, "gateway.idle", link=link.number)
        self._state.settle()

    def _interrupt(self, link: Link, session_key: str) -> None:
        """Pass on the wish to stop a turn, to the connection that serves the session's bot."""
        rest = (session_key.split(":", 4) + [""] * 5)[4]
        for bot_id in link.session.bots:
            number = self._state.inbox.serving(bot_id)
            target = self._state.links.get(number) if number is not None else None
            if target is not None and link.session.may_use(bot_id, self._state.table):
                chats = [chat for bot, chat in self._state.authors.known() if bot == bot_id]
                chat = next(
                    (each for each in chats if rest == each or rest.startswith(each + ":")),
                    rest.partition(":")[0],
                )
                target.write(frames.interrupt_inbound(session_key, chat))

    def declare(self, gateway_id: str, policy: frames.Policy) -> None:
        """A gateway declared when it wants to be woken in groups."""
        self._state.declared[gateway_id, policy.platform] = policy
        self._state.store.policy(gateway_id, policy)
        self._state.router.policies = policies_of(self._state.table, self._state.declared)
        event(logger, "policy.declared", gateway=shown(gateway_id), platform=shown(policy.platform))
