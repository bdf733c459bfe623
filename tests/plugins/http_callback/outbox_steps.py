"""The steps of an outbox that its tests take: put, take, end."""

from hermes_bridge.plugins.http_callback.custody import DAY_MS
from hermes_bridge.plugins.http_callback.outbox import Draft, Job, Outbox, Receipt, Result
from hermes_bridge.plugins.http_callback.verdict import Answer, Outcome, Verdict

MIN = 60_000
LEASE = 45_000


def draft(id: str, lane: str = "talk", **changes: object) -> Draft:
    base: dict[str, object] = {
        "id": id,
        "kind": "final",
        "endpoint": "@crm",
        "url": "https://b.example/cb",
        "lane": lane,
        "make_body": lambda seq: f'{{"hermes": {{"id": "{id}", "seq": {seq}}}}}'.encode(),
        "max_age_ms": DAY_MS,
    }
    return Draft(**(base | changes))  # type: ignore[arg-type]


def put(outbox: Outbox, id: str, lane: str = "talk", now: int = 0, **changes: object) -> Receipt:
    with outbox.store.transaction(durable=True):
        return outbox.enqueue(draft(id, lane, **changes), now)


def take(outbox: Outbox, now: int = 0, limit: int = 10, endpoint: str = "@crm") -> list[Job]:
    with outbox.store.transaction(durable=False):
        return outbox.claim(endpoint, limit, now, LEASE)


def end(
    outbox: Outbox,
    job: Job,
    outcome: Outcome,
    now: int = 0,
    delay: int = 0,
    hold: int | None = None,
) -> None:
    status = 200 if outcome is Outcome.DELIVERED else 503
    verdict = Verdict(outcome, "" if status == 200 else "HTTP 503", delay)
    with outbox.store.transaction(durable=False):
        outbox.settle(Result(job, Answer(status=status), verdict, now, hold), now)


def state(outbox: Outbox, id: str) -> str:
    return str(outbox.db.execute("SELECT state FROM deliveries WHERE id=?", (id,)).fetchone()[0])


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]
