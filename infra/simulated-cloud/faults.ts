import { setTimeout as sleep } from "node:timers/promises";
import type { Answer, Incoming, Operation } from "./http.ts";

/** Which requests a fault is for: those that fit every member it names. None fits all. */
interface FaultMatch {
  host?: string;
  /** Such as `keyvault.listSecrets`, or a beginning such as `keyvault.*`. */
  operation?: string;
  vault?: string;
  subscription?: string;
  /** The id of a resource of the resource manager other than a vault. */
  resource?: string;
  /** A secret's, key's, certificate's or setting's name, or the name of a webhook sink. */
  item?: string;
}

export type FaultAction =
  /** Wait, then go on: to the next fault that fits, or to the true answer. */
  | { kind: "latency"; milliseconds: number }
  /** 429, with the header `Retry-After` only when it is given. */
  | { kind: "throttle"; retryAfterSeconds?: number }
  /** 403: no permission. */
  | { kind: "deny" }
  /** 403: the address is not let in. */
  | { kind: "firewall" }
  /** What only this service says, by the name in its `refusals.named`. */
  | { kind: "refuse"; as: string }
  /** 500, 502, 503 or 504, or any other status. */
  | { kind: "fail"; status: number }
  /** No answer at all, until the client gives up. */
  | { kind: "hang" }
  /** The operation is done, then no answer at all. */
  | { kind: "hangAfter" }
  /** The connection ends before anything is done; clients see a reset. */
  | { kind: "reset" }
  /** 101 to a request that asked for no other protocol, and nothing after it. */
  | { kind: "switchProtocols" }
  /** The operation is done, then the connection ends without an answer: the client can't know. */
  | { kind: "loseAnswer" }
  /** The operation is done, and the connection ends half-way through the answer's body. */
  | { kind: "cutAnswer" }
  /** The operation is done, and the answer is 500 or 503 all the same. */
  | { kind: "failAfter"; status: number }
  /** 200 with a page that is not JSON, JSON that stops half-way, or JSON of another shape. */
  | { kind: "garbage"; as: "html" | "truncated" | "otherShape" }
  /** The true answer, but its next link leads to `https://evil.localhost`. */
  | { kind: "foreignNextLink" };

export interface Fault {
  match?: FaultMatch;
  action: FaultAction;
  /** How often it happens; left out, always. */
  times?: number;
  /** How many fitting requests go through first. */
  after?: number;
}

export interface ActiveFault extends Fault {
  id: string;
  /** How often it happened. */
  happened: number;
}

/** Undefined means that the connection is to be cut without an answer. */
export type Outcome = { answer: Answer | undefined; fault?: string };

/** These happen on the way, so they happen to a request without a token too. */
const ON_THE_WAY = new Set<FaultAction["kind"]>([
  "latency",
  "hang",
  "hangAfter",
  "reset",
  "switchProtocols",
  "loseAnswer",
  "cutAnswer",
]);

/** The rules by which the cloud misbehaves, in the order they were added; the first that fits decides. */
export class Faults {
  #rules: (ActiveFault & { seen: number })[] = [];
  #next = 1;

  add(fault: Fault): string {
    const id = `fault-${this.#next++}`;
    this.#rules.push({ ...fault, id, happened: 0, seen: 0 });
    return id;
  }

  remove(id: string): boolean {
    const before = this.#rules.length;
    this.#rules = this.#rules.filter((rule) => rule.id !== id);
    return this.#rules.length < before;
  }

  clear(): void {
    this.#rules = [];
  }

  list(): ActiveFault[] {
    return this.#rules.map(({ seen: _, ...rule }) => rule);
  }

  /** The operation's answer, or what a fault makes of it. */
  async apply(request: Incoming, operation: Operation, foreignHost: string): Promise<Outcome> {
    for (const rule of this.#rules) {
      if (!fits(rule.match ?? {}, request, operation)) continue;
      // A caller who has not said who he is learns nothing of vaults, unless a rule names the challenge itself.
      const named = rule.match?.operation === operation.name;
      if (operation.anonymous && !named && !ON_THE_WAY.has(rule.action.kind)) continue;
      rule.seen++;
      if (rule.seen <= (rule.after ?? 0) || rule.happened >= (rule.times ?? Number.POSITIVE_INFINITY)) continue;
      rule.happened++;
      if (rule.action.kind === "latency") {
        await sleep(rule.action.milliseconds);
        continue;
      }
      return { answer: await answerOf(rule.action, operation, foreignHost), fault: rule.id };
    }
    return { answer: await operation.answer() };
  }
}

async function answerOf(
  action: Exclude<FaultAction, { kind: "latency" }>,
  operation: Operation,
  foreignHost: string,
): Promise<Answer | undefined> {
  switch (action.kind) {
    case "throttle":
      return operation.refusals.throttled(action.retryAfterSeconds);
    case "deny":
      return operation.refusals.denied();
    case "firewall":
      return operation.refusals.firewalled();
    case "refuse": {
      const refusal = operation.refusals.named?.[action.as];
      if (refusal === undefined) throw new Error(`${operation.name} has no refusal "${action.as}"`);
      return refusal();
    }
    case "fail":
      return operation.refusals.failed(action.status);
    case "hang":
      // Never settles: the client's own time limit, or the end of the cloud, closes the connection.
      return new Promise(() => {});
    case "hangAfter":
      await operation.answer();
      return new Promise(() => {});
    case "reset":
      return undefined;
    case "switchProtocols":
      return { status: 101 };
    case "loseAnswer":
      await operation.answer();
      return undefined;
    case "cutAnswer":
      return { ...(await operation.answer()), cut: true };
    case "failAfter":
      await operation.answer();
      return operation.refusals.failed(action.status);
    case "garbage":
      return garbage(action.as);
    case "foreignNextLink": {
      const answer = await operation.answer();
      if (typeof answer.body !== "object" || answer.body === null) return answer;
      const name = "@odata.context" in answer.body ? "@odata.nextLink" : "nextLink";
      return { ...answer, body: { ...answer.body, [name]: `${foreignHost}/stolen?page=2` } };
    }
  }
}

function garbage(as: "html" | "truncated" | "otherShape"): Answer {
  const json = "application/json; charset=utf-8";
  if (as === "truncated") return { status: 200, text: { type: json, content: '{"value":[{"id":"https://' } };
  if (as === "otherShape") return { status: 200, body: { value: { not: "a list" } } };
  const content = "<!doctype html><title>Proxy</title><p>Please sign in to the network.</p>";
  return { status: 200, text: { type: "text/html", content } };
}

function fits(match: FaultMatch, request: Incoming, operation: Operation): boolean {
  return (
    same(match.host, request.host) &&
    same(match.vault, operation.vault) &&
    same(match.subscription, operation.subscription) &&
    same(match.resource, operation.resource) &&
    same(match.item, operation.item) &&
    (match.operation === undefined ||
      match.operation === operation.name ||
      (match.operation.endsWith("*") && operation.name.startsWith(match.operation.slice(0, -1))))
  );
}

function same(wanted: string | undefined, actual: string | undefined): boolean {
  return wanted === undefined || wanted.toLowerCase() === actual?.toLowerCase();
}
