"""Requests that do not come from the opened page are refused."""

import socket

import pytest
from tests.page.conftest import Served

from rankscope.errors import RequestError
from rankscope.page import Session, bound_socket
from rankscope.page.security import MAX_BODY


def test_the_page_has_a_strict_policy_and_no_script_of_its_own(served: Served) -> None:
    status, content, headers = served.send(f"/?token={served.session.token}")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"<script>" not in content
    assert b"style=" not in content
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/api/jobs", "/api/openapi.json", "/api/events", "/api/no"])
def test_without_the_token_nothing_is_told(served: Served, path: str) -> None:
    for token in (None, "", "wrong", served.session.token[:-1]):
        status, content, headers = served.send(path, X_Rankscope_Token=token)
        assert status == 403
        assert b"token is missing or wrong" in content
        assert "content-security-policy" in headers
    assert served.send(f"/?token={served.session.token}x")[0] == 403


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "127.0.0.1:1", "localhost.evil.org"])
def test_another_host_is_refused(served: Served, host: str) -> None:
    status, content, _ = served.send("/api/jobs", Host=host)
    assert status == 403
    assert b"127.0.0.1 and localhost only" in content


@pytest.mark.parametrize("origin", ["null", "http://example.org", "https://127.0.0.1"])
def test_another_origin_is_refused(served: Served, origin: str) -> None:
    assert served.send("/api/jobs", Origin=origin)[0] == 403
    own = f"http://127.0.0.1:{served.port}"
    assert served.send("/api/jobs", Origin=own)[0] == 200


def test_a_body_that_is_too_large_is_refused_whatever_it_says(served: Served) -> None:
    claimed = served.send("/api/jobs/cancel", b"{}", Content_Length=str(MAX_BODY + 1))
    assert claimed[0] == 413
    body = b" " * (MAX_BODY + 1)
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    sent = served.send(
        "/api/jobs/cancel", chunked, Content_Length=None, Transfer_Encoding="chunked"
    )
    assert sent[0] == 413
    assert b"2,000,000 bytes" in sent[1]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, b"not usable JSON"),
        (b"\xff\xfe", 400, b"not usable JSON"),
        (b"[" * 10_000, 400, b"nested too deeply"),
        (b"[]", 400, b"wanted a JSON object"),
        (b'{"number": 1, "number": 2}', 400, b"stands twice"),
        (b'{"number": 1e999}', 400, b"finite numbers"),
        (b'{"number": "1"}', 400, b"at number: wanted an integer"),
        (b"{}", 400, b"number is missing"),
        (b'{"number": 1, "path": "/etc"}', 400, b"only the keys number"),
        (b'{"number": 4711}', 409, b"There is no job 4711"),
    ],
)
def test_garbage_is_answered_in_one_line(
    served: Served, body: bytes, status: int, words: bytes
) -> None:
    answered = served.send("/api/jobs/cancel", body)
    assert answered[0] == status
    assert words in answered[1]
    assert served.send("/api/jobs")[0] == 200


def test_another_kind_of_body_and_another_method_are_refused(served: Served) -> None:
    form = served.send("/api/jobs/cancel", b"number=1", Content_Type="text/plain")
    assert form[0] == 415
    assert served.send("/api/jobs/cancel", method="DELETE")[0] == 405
    assert served.send("/api/nothing")[0] == 404


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/%2e%2e/errors.py"]
)
def test_files_outside_the_static_folder_are_not_served(served: Served, path: str) -> None:
    assert served.send(path)[0] in (403, 404)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a\0", ".hidden", "x" * 101, "\ud800"],
)
def test_only_plain_names_are_places_in_the_output_folder(served: Served, name: str) -> None:
    with pytest.raises(RequestError, match="one word without slashes"):
        served.session.output_path(name)
    assert served.session.output_path("small model").parent == served.session.output


def test_a_port_that_is_taken_is_refused_with_what_to_do(served: Served) -> None:
    with pytest.raises(RequestError, match=f"Port {served.port} .* --port"):
        bound_socket(served.port)
    with bound_socket(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert listening.family == socket.AF_INET
        assert listening.proto == socket.IPPROTO_TCP  # without it every answer waits 40 ms


def test_every_session_has_a_token_of_its_own(served: Served) -> None:
    tokens = {Session(None, served.session.output).token for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 32
