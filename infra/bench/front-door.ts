import { fork } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createPasswords } from "../../shared/access/passwords.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { answered } from "./answered.ts";
import type { Crowd, CrowdDone } from "./front-door-clients.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, median, type Section } from "./section.ts";

const UNKNOWN_ADDRESSES = 100;
const READERS = 10;
/** Number of sign-ins, including the one that makes the address known. One address may send at most ten per minute. */
const SIGN_INS = 8;
const BETWEEN_SIGN_INS_MS = 500;
const SIGN_IN_LIMIT = 3;
const HASHES = 3;
const ROUNDS = 5;
const ASKED = 60;
/** Load on `/health` is not simulated. */
const BETWEEN_ASKED_MS = 20;
const HEALTH_LIMIT = 2;
/** Time until a crowd's connections are open and its first requests are queued. */
const GATHERING_MS = 1_000;
/** Limits of the clients. Measurements end earlier; clients that reach a limit are an error. */
const CROWD_BOUNDS = { most: 20_000, forMs: 60_000 };
/** Default of a deployment. Clients set their addresses as if one more proxy were in front of the service. */
const ENVIRONMENT = { RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000", TRUSTED_PROXY_HOPS: "2" };

/**
 * Measures how sign-ins from unknown addresses delay a known user's sign-in, and how downloads of the documentation delay
 * `/health`.
 */
export async function frontDoor(): Promise<Section> {
  const service = await Service.start({ env: ENVIRONMENT });
  const crowd = startCrowd(service);
  try {
    const [quietHome, home] = ["192.0.2.1", "192.0.2.2"];
    for (const address of [quietHome, home]) await signIns(service.url, address, 1);
    const hash = await oneHash();
    const alone = await signIns(service.url, quietHome, SIGN_INS);
    const hammered = await crowd.during(HAMMERING, () => signIns(service.url, home, SIGN_INS));

    const requests = await documentation(service.url);
    const readers = (addressOf: (reader: number) => string) => ({
      clients: Array.from({ length: READERS }, (_, reader) => addressOf(reader)),
      requests,
    });
    const quiet: number[][] = [];
    const busy: Measured<number[]>[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      quiet.push(await healths(service.url));
      const fromTheirOwn = readers((reader) => `198.51.100.${round * READERS + reader}`);
      busy.push(await crowd.during(fromTheirOwn, () => healths(service.url)));
    }
    const refused = await crowd.during(
      readers(() => "198.51.100.250"),
      () => healths(service.url),
    );

    const base = Math.min(...quiet.map(median));
    const health = (what: string, of: Measured<number[]>[], decides: string): Figure => {
      const medians = of.map(({ result }) => median(result));
      const times = Math.min(...medians) / base;
      return {
        what: `/health, while ${READERS} clients ${what}`,
        value: `${spread(medians)}, ${times.toFixed(2)} times`,
        comparedWith: `${described(of)}; ${decides}`,
        bound: atMost(times, HEALTH_LIMIT, " times"),
      };
    };
    const worst = Math.max(...hammered.result);
    const unexpected = [
      ...busy.map(({ statuses }) => others(statuses, "200", "429")),
      others(refused.statuses, "200", "429"),
      others(hammered.statuses, "401", "429"),
    ];
    return {
      title: "Sign-in and health checks under load",
      how: `Default rate limits, passwords hashed at full cost. A crowd is a separate process on the same cores, each client with its own connection and no pauses. Sign-in: a user who signed in from that address before signs in ${SIGN_INS} times, alone and while ${UNKNOWN_ADDRESSES} addresses guess that user's password and other names. \`/health\`: ${ASKED} requests alone, and ${ASKED} while ${READERS} clients with different addresses fetch \`/docs\`, \`/redoc\`, their files and \`/openapi.json\`; medians of ${ROUNDS} rounds. Then once more with all clients on one address, which soon exceeds its limit.`,
      figures: [
        {
          what: "a known user's sign-in, alone",
          value: `${milliseconds(median(alone))}, the longest ${milliseconds(Math.max(...alone))}`,
          comparedWith: `${milliseconds(hash)}, one hash by scrypt in this process`,
        },
        {
          what: `the longest of a known user's, while ${UNKNOWN_ADDRESSES} addresses hammer`,
          value: `${(worst / 1000).toFixed(2)} s, the median ${milliseconds(median(hammered.result))}`,
          comparedWith: `${described([hammered])}; it waits for at most one unknown address`,
          bound: atMost(worst / 1000, SIGN_IN_LIMIT, " s"),
        },
        {
          what: "/health, alone",
          value: spread(quiet.map(median)),
          comparedWith: "the shortest time counts",
        },
        health("fetch the documentation's files", busy, "files leave at 50 a second"),
        health("are over their limit", [refused], "refusals leave at 100 a second"),
        {
          what: "answers to the crowds that are neither right nor 429",
          value: String(sum(unexpected)),
          comparedWith: "none is lost, and none fails",
          bound: equalTo(sum(unexpected), 0),
        },
      ],
    };
  } finally {
    crowd.stop();
    await service.stop();
  }
}

/**
 * Measures how sign-ins from unknown addresses delay a known user's sign-in, and how downloads of the documentation delay
 * `/health`.
 */
type Measured<T> = CrowdDone & { result: T; ms: number };

function startCrowd(service: Service) {
  const child = fork(path.resolve(import.meta.dirname, "front-door-clients.ts"));
  return {
    /** Runs the work while the clients send requests. @throws Error if the clients finished before the work did. */
    async during<T>(crowd: Pick<Crowd, "clients" | "requests">, work: () => Promise<T>): Promise<Measured<T>> {
      const ended = new AbortController();
      const { result, ms } = await withProcessorTime(service.url, async () => {
        const answer = once(child, "message", { signal: ended.signal });
        child.once("exit", () => ended.abort(new Error("The crowd's process ended")));
        let isGone = false;
        const done = answer.then(([message]) => {
          isGone = true;
          return message as CrowdDone;
        });
        child.send({ ...crowd, ...CROWD_BOUNDS, url: service.url } satisfies Crowd);
        await delay(GATHERING_MS);
        const measured = await work();
        if (isGone) throw new Error("The crowd was gone before the work was done");
        child.send("enough");
        return { ...(await done), result: measured };
      });
      return { ...result, ms };
    },
    stop: () => child.kill(),
  };
}

const HAMMERING: Pick<Crowd, "clients" | "requests"> = {
  clients: Array.from({ length: UNKNOWN_ADDRESSES }, (_, index) => `203.0.113.${index}`),
  requests: [ADMIN.username, "name{client}-{round}"].map((username) => ({
    method: "POST",
    path: "/auth/login",
    body: JSON.stringify({ username, password: "a wrong password" }),
  })),
};

/** Paths of the pages, of the files that they load, and of the API description. */
async function documentation(url: string): Promise<Crowd["requests"]> {
  const pages = ["/docs", "/redoc"];
  const texts = await Promise.all(pages.map(async (page) => await (await fetch(url + page)).text()));
  const files = texts.flatMap((text) => [...text.matchAll(/(?:src|href)="(\/docs\/files\/[^"]+)"/g)]);
  const paths = [...new Set([...pages, ...files.map(([, file]) => file!), "/openapi.json"])];
  // Warms up everything that is created on first use.
  for (const one of paths) await (await fetch(url + one)).arrayBuffer();
  return paths.map((one) => ({ method: "GET", path: one }));
}

/** Returns the duration of each request in milliseconds. */
async function signIns(url: string, address: string, count: number): Promise<number[]> {
  const headers = { "Content-Type": "application/json", "X-Forwarded-For": address };
  const options = { method: "POST", headers, body: JSON.stringify(ADMIN) };
  return await oneByOne(`${url}/auth/login`, options, count, BETWEEN_SIGN_INS_MS);
}

const healths = async (url: string): Promise<number[]> => await oneByOne(`${url}/health`, {}, ASKED, BETWEEN_ASKED_MS);

async function oneByOne(
  url: string,
  options: Parameters<typeof answered>[2],
  count: number,
  pauseMs: number,
): Promise<number[]> {
  const agent = new http.Agent({ keepAlive: true });
  const taken: number[] = [];
  for (let time = 0; time < count; time++) {
    const answer = await answered(agent, url, options);
    if (answer.status !== 200) throw new Error(`${url} answered ${answer.status}`);
    taken.push(answer.milliseconds);
    await delay(pauseMs);
  }
  agent.destroy();
  return taken;
}

/** The responses of the clients, and their cost in the functions process. */
function described(crowds: Measured<unknown>[]): string {
  const of = (status: string) => sum(crowds.map(({ statuses }) => statuses[status] ?? 0));
  const all = sum(crowds.map(({ statuses }) => others(statuses)));
  const seconds = sum(crowds.map((crowd) => crowd.seconds));
  const megabytes = sum(crowds.map(({ bytes }) => bytes)) / 1_000_000;
  const answers = ["200", "401", "429"].flatMap((status) => (of(status) > 0 ? `${of(status)} answered ${status}` : []));
  return `${answers.join(", ")} and ${megabytes.toFixed(0)} MB in ${seconds.toFixed(1)} s, ${milliseconds(sum(crowds.map(({ ms }) => ms)) / all)} of the processor each`;
}

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
const milliseconds = (value: number): string => `${value.toFixed(1)} ms`;
const spread = (values: number[]): string =>
  values.length > 1
    ? `${milliseconds(Math.min(...values))} (to ${Math.max(...values).toFixed(1)})`
    : milliseconds(values[0]!);

/** Returns the milliseconds that this machine currently needs for one hash. */
async function oneHash(): Promise<number> {
  const passwords = createPasswords({ randomness: systemRandomness() });
  const taken: number[] = [];
  for (let time = 0; time < HASHES; time++) {
    const started = performance.now();
    await passwords.hash(ADMIN.password);
    taken.push(performance.now() - started);
  }
  return median(taken);
}

/** Returns the number of responses with other statuses than these. */
function others(statuses: Record<string, number>, ...wanted: string[]): number {
  return sum(Object.entries(statuses).map(([status, count]) => (wanted.includes(status) ? 0 : count)));
}
