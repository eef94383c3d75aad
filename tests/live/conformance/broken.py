"""The conformance worker with one precaution removed, which MISTAKE names: ``everwatch conformance`` must notice."""

import os
import sys
from functools import partial
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[3] / "sdk/python/examples"))

from conformance_worker import conformance

from everwatch import Service, _broker, _effects, _rules, _runtime, _session, _slots

carry_out = _session.ServiceSession._carry_out


async def carry_out_and_ack(self, effect):
    """Acknowledges at once what the report of its end is still on its way for."""
    await carry_out(self, effect)
    if isinstance(effect, _effects.Settle):
        await self.step(partial(self.machine.on_confirmed, effect.run))


async def drop(self, receipt):
    """Acknowledges what should be given back."""
    return await self.ack(receipt)


match os.environ["MISTAKE"]:
    case "acks_before_the_confirm":
        _session.ServiceSession._carry_out = carry_out_and_ack
    case "ignores_revocations":
        _slots.Slots.on_revocations = lambda self, revocations, now: []
    case "reports_the_same_epoch":
        _broker.acquisitions = lambda headers: 0
    case "drops_unknown_kinds":
        _broker.Session.requeue = drop
    case "has_no_fence":
        _rules.Proofs.silence = lambda self, now, fence_after: None
        _rules.Proofs.are_fresh = lambda self, now, fence_after: True
    case "misses_closed_channels":
        _broker.Consumer._on_closed = lambda self, closing: None
    case "keeps_its_id":
        _runtime.uuid4 = lambda: UUID("0190a1b2-0000-4000-8000-000000000001")
    case other:
        sys.exit(f"MISTAKE: `{other}` is unknown")

Service(kinds=[conformance]).main()
