"""What is asked of one agent: its open exchanges, and a lane for each conversation."""

from hermes_bridge.relay.core.exchange import Exchange


class Queue:
    """Only the head of a lane is woken; lanes go on side by side."""

    __slots__ = ("lanes", "open")

    def __init__(self) -> None:
        self.open: dict[str, Exchange] = {}
        self.lanes: dict[str, list[Exchange]] = {}

    def add(self, exchange: Exchange) -> None:
        """Put an exchange at the end of its lane."""
        self.open[exchange.rid] = exchange
        lane = self.lanes.get(exchange.conv)
        if lane is None:
            self.lanes[exchange.conv] = [exchange]
        else:
            lane.append(exchange)

    def remove(self, exchange: Exchange) -> None:
        """Take an exchange out, wherever in its lane it stands."""
        del self.open[exchange.rid]
        lane = self.lanes[exchange.conv]
        if len(lane) == 1:
            del self.lanes[exchange.conv]
        else:
            lane.remove(exchange)
