"""B. The connector: Hermes gateways on one side, chat accounts on the other."""
