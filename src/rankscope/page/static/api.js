// What the page asks the server, and what the server tells the page.

// A page that was written to a file has its data in it, and no server.
const written = document.getElementById("data");
export const embedded = written ? JSON.parse(written.textContent) : null;

const token = new URLSearchParams(location.search).get("token") ?? "";
const headers = { "X-Rankscope-Token": token };

async function answer(response) {
  if (response.ok) return response;
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error ?? message;
  } catch { /* no JSON: the status has to do */ }
  throw new Error(message);
}

async function request(path, body, signal) {
  const options = body === undefined
    ? { headers, signal }
    : {
      method: "POST", signal, body: JSON.stringify(body),
      headers: { ...headers, "Content-Type": "application/json" },
    };
  return answer(await fetch(`/api${path}`, options));
}

// GET without a body, POST with one; the answer as plain data, or an Error with the server's words.
export async function ask(path, body, signal) {
  return (await request(path, body, signal)).json();
}

// The same for a file, which the browser then saves.
export async function download(path, body) {
  const response = await request(path, body);
  const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "rankscope";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return name;
}

// --- Events: one stream for the whole page, opened by the first listener --------------------------

const listeners = new Map();
let isListening = false;
const latest = new Map();  // of the connection, and of every job

// Who begins to listen to the connection or to jobs is told first how they are.
export function listen(kind, callback) {
  if (!listeners.has(kind)) listeners.set(kind, []);
  listeners.get(kind).push(callback);
  for (const event of latest.values()) if (event.kind === kind) queueMicrotask(() => callback(event));
  if (!isListening) {
    isListening = true;
    follow();
  }
}

// The newest job of a kind as it goes on, and a question whether it still is the newest.
export function listenToJob(kind, callback) {
  let newest = 0;
  listen("job", ({ job }) => {
    if (job.kind !== kind || job.number < newest) return;
    newest = job.number;
    callback(job, () => job.number === newest);
  });
}

function tell(event) {
  if (event.kind === "connection") latest.set("connection", event);
  if (event.kind === "job") latest.set(event.job.number, event);
  for (const callback of listeners.get(event.kind) ?? []) callback(event);
}

async function follow() {
  let next = 0;
  for (;;) {
    try {
      const { jobs, next_event: end } = await ask("/jobs");
      next = end;
      for (const job of jobs) tell({ kind: "job", job });
      tell({ kind: "connection", is_up: true });
      await readLines(next);
    } catch (error) {
      tell({ kind: "connection", is_up: false });
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function readLines(after) {
  const response = await answer(await fetch(`/api/events?after=${after}`, { headers }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) tell(JSON.parse(line));
  }
}
