// A client that shares nothing with the server but the protocol: Node alone, no packages.
//
//   node foreign_client.mjs <project directory> <what to ask> <server command> [arguments...]
//
// It starts the server, runs one turn, answers every approval, closes the server's stdin, starts it
// again and reads the thread back. One JSON document is printed:
//
//   { runs: [{ messages, lines, exitCode, signal }], error? }
//
// `messages` are those of both sides in the order in which they were sent and heard, each as
// { from: "client" | "server", message }; `lines` are the server's, as they came, unparsed.
import { spawn } from "node:child_process";

const PATIENCE_MS = 20_000;
const [project, text, command, ...args] = process.argv.slice(2);

/** One server process and the conversation with it. */
class Server {
  messages = [];
  lines = [];
  #rest = Buffer.alloc(0);
  #answers = new Map();
  #watchers = new Set();
  #count = 0;

  constructor() {
    this.process = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.process.stdout.on("data", (chunk) => this.#feed(chunk));
    // "close" comes after "exit", and after the last of the output.
    this.ended = new Promise((resolve, reject) => {
      this.process.on("error", reject);
      this.process.on("close", (exitCode, signal) => resolve({ exitCode, signal }));
    });
  }

  /** A request's result; an error response is an exception. */
  request(method, params) {
    const id = `client-${++this.#count}`;
    return new Promise((resolve, reject) => {
      this.#answers.set(id, { resolve, reject });
      this.send({ id, method, params });
    });
  }

  send(message) {
    this.messages.push({ from: "client", message });
    this.process.stdin.write(`${JSON.stringify(message)}\n`);
  }

  /** The first message heard from now on for which `wanted` holds. */
  until(wanted) {
    return new Promise((resolve) => {
      const watch = (message) => {
        if (!wanted(message)) return;
        this.#watchers.delete(watch);
        resolve(message);
      };
      this.#watchers.add(watch);
    });
  }

  async handshake() {
    const result = await this.request("initialize", { clientInfo: { name: "foreign", version: "1.0" } });
    this.send({ method: "initialized", params: {} });
    return result;
  }

  /** End of input; resolves when the process has ended and all of its output was heard. */
  async close() {
    this.process.stdin.end();
    const end = await this.ended;
    if (this.#rest.length) throw new Error("the output ends in half a line");
    return { messages: this.messages, lines: this.lines, ...end };
  }

  /** Lines end at a line feed and nowhere else, so they are cut in bytes. */
  #feed(chunk) {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (let end = this.#rest.indexOf(10); end >= 0; end = this.#rest.indexOf(10)) {
      const line = this.#rest.subarray(0, end).toString("utf8");
      this.#rest = this.#rest.subarray(end + 1);
      this.lines.push(line);
      this.#hear(JSON.parse(line));
    }
  }

  #hear(message) {
    this.messages.push({ from: "server", message });
    if (message.method === undefined) {
      const { resolve, reject } = this.#answers.get(message.id);
      this.#answers.delete(message.id);
      if (message.error) reject(new Error(JSON.stringify(message.error)));
      else resolve(message.result);
    } else if (message.id !== undefined) {
      this.#decide(message);
    }
    for (const watch of [...this.#watchers]) watch(message);
  }

  /** Of the choices on offer, the one that lets the call run. */
  #decide({ id, method, params }) {
    if (method === "item/toolCall/requestApproval" && params.decisions.includes("accept")) {
      this.send({ id, result: { decision: "accept" } });
    } else {
      this.send({ id, error: { code: "methodNotFound", message: `${method} is not answered here` } });
    }
  }
}

async function firstRun(server) {
  await server.handshake();
  const { thread } = await server.request("thread/start", { cwd: project, approvalMode: "ask" });
  await server.request("model/list", {});
  const idle = server.until(
    ({ method, params }) => method === "thread/status/changed" && params.status.type === "idle",
  );
  const tokens = { requestId: "start-1", clientMessageId: "draft-1" };
  await server.request("turn/start", { threadId: thread.id, text, ...tokens });
  await idle;
  await server.request("thread/read", { threadId: thread.id });
  return thread.id;
}

async function secondRun(server, threadId) {
  await server.handshake();
  await server.request("thread/read", { threadId });
}

const runs = [];
let current;

/** Run `steps` against a new server, to its end; what they return. */
async function run(steps) {
  current = new Server();
  const endedEarly = current.ended.then(() => Promise.reject(new Error("the server ended early")));
  const result = await Promise.race([steps(current), endedEarly]);
  runs.push(await current.close());
  return result;
}

function report(error) {
  const result = error === undefined ? { runs } : { runs, error: String(error), heard: current?.messages };
  process.stdout.write(JSON.stringify(result), () => process.exit(error === undefined ? 0 : 1));
}

function giveUp(error) {
  current?.process.kill("SIGKILL");
  report(error);
}

const patience = setTimeout(() => giveUp(new Error(`nothing came of it in ${PATIENCE_MS} ms`)), PATIENCE_MS);
try {
  const threadId = await run(firstRun);
  await run((server) => secondRun(server, threadId));
  report();
} catch (error) {
  giveUp(error);
} finally {
  clearTimeout(patience);
}
