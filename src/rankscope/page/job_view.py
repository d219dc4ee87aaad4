"""Jobs on the page: what runs, how far it is, and a button that ends it."""

from rankscope.page.endpoints import Body, Endpoint
from rankscope.page.session import QUICK, Session
from rankscope.strict_json import Integer, Object


def list_jobs(session: Session, body: Body) -> dict[str, object]:
    """All jobs, and the number of the event to ask for next."""
    end = session.events.end
    return {
        "jobs": [job.to_dict() for job in session.jobs.all() if job.kind != QUICK],
        "next_event": end,
    }


def cancel_job(session: Session, body: Body) -> dict[str, object]:
    """End one job."""
    return {"job": session.jobs.cancel(body["number"]).to_dict()}


ENDPOINTS = (
    Endpoint("/jobs", "All jobs of this session.", list_jobs),
    Endpoint(
        "/jobs/cancel",
        "End a job.",
        cancel_job,
        Object({"number": Integer(low=1, high=2**31 - 1)}),
    ),
)
