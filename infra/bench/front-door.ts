import { fork } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createPasswords } from "../../shared/access/passwords.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import type { Crowd, CrowdDone } from "./front-door-clients.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, median, type Section } from "./section.ts";
import { sendTimedRequest } from "./timed-request.ts";

// Measures sign-ins and health checks while a crowd of clients guesses passwords or downloads the documentation. A child process
// (front-door-clients.ts) runs the clients.

const UNKNOWN_ADDRESSES = 100;
const READERS = 10;
/** Measured sign-ins per address. With the first, unmeasured one they stay below the limit of ten per minute and address. */
const SIGN_INS = 8;
const SIGN_IN_PAUSE_MS = 500;
/** Bound of the longest sign-in, in seconds. */
const SIGN_IN_LIMIT = 3;
/** Number of measured password hashes. The figure is their median. */
const HASHES = 3;
const ROUNDS = 5;
/** Number of `/health` requests per measurement, and the pause between two of them. */
const HEALTH_REQUESTS = 60;
const HEALTH_PAUSE_MS = 20;
/** Bound of the duration of `/health` under load, as a multiple of its duration without load. */
const HEALTH_LIMIT = 2;
/** Time until a crowd's connections are open and its first requests are queued. */
const CROWD_START_MS = 1_000;
/** Limits of the clients. Measurements end earlier; clients that reach a limit are an error. */
const CROWD_BOUNDS = { maxRequests: 20_000, durationMs: 60_000 };
/**
 * Default rate limits of a deployment. Two trusted proxies instead of one make the service accept the client addresses that the
 * benchmark sends in `X-Forwarded-For`.
 */
const ENVIRONMENT = { RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000", TRUSTED_PROXY_HOPS: "2" };

/**
 * Benchmark `frontDoor`: measures how sign-in attempts from unknown addresses delay the sign-in from a known address (one with
 * a recent successful sign-in), and how downloads of the documentation delay `/health`.
 */
export async function frontDoor(): Promise<Section> {
  const service = await Service.start({ env: ENVIRONMENT });
  const crowd = startCrowd(service);
  try {
    // Two addresses, because one address may not sign in often enough for both measurements.
    const [addressWithoutLoad, addressUnderLoad] = ["192.0.2.1", "192.0.2.2"];
    for (const address of [addressWithoutLoad, addressUnderLoad]) await timeSignIns(service.url, address, 1);
    const hashMs = await timeHash();
    const signInsAlone = await timeSignIns(service.url, addressWithoutLoad, SIGN_INS);
    const signInsUnderLoad = await crowd.during(PASSWORD_GUESSING, () =>
      timeSignIns(service.url, addressUnderLoad, SIGN_INS),
    );

    const requests = await documentationRequests(service.url);
    const readers = (addressOf: (reader: number) => string) => ({
      clients: Array.from({ length: READERS }, (_, reader) => addressOf(reader)),
      requests,
    });
    const healthAlone: number[][] = [];
    const healthUnderLoad: Measured<number[]>[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      healthAlone.push(await timeHealth(service.url));
      const readersWithOwnAddresses = readers((reader) => `198.51.100.${round * READERS + reader}`);
      healthUnderLoad.push(await crowd.during(readersWithOwnAddresses, () => timeHealth(service.url)));
    }
    const healthUnderRejections = await crowd.during(
      readers(() => "198.51.100.250"),
      () => timeHealth(service.url),
    );

    const shortestMedian = Math.min(...healthAlone.map(median));
    // `explanation`: why the slowdown is limited, for the reader of BENCHMARKS.md.
    const healthFigure = (what: string, rounds: Measured<number[]>[], explanation: string): Figure => {
      const medians = rounds.map(({ result }) => median(result));
      const slowdown = Math.min(...medians) / shortestMedian;
      return {
        what: `/health, while ${READERS} clients ${what}`,
        value: `${formatRange(medians)}, ${slowdown.toFixed(2)} times`,
        comparedWith: `${describeCrowds(rounds)}; ${explanation}`,
        bound: atMost(slowdown, HEALTH_LIMIT, " times"),
      };
    };
    const longestSignInMs = Math.max(...signInsUnderLoad.result);
    const unexpected = [
      ...healthUnderLoad.map(({ statuses }) => countOtherStatuses(statuses, "200", "429")),
      countOtherStatuses(healthUnderRejections.statuses, "200", "429"),
      countOtherStatuses(signInsUnderLoad.statuses, "401", "429"),
    ];
    return {
      title: "Sign-in and health checks under load",
      how: `Default rate limits, passwords hashed at full cost. A crowd is a separate process on the same cores, each client with its own connection and no pauses. Sign-in: a user who signed in from that address before signs in ${SIGN_INS} times, alone and while ${UNKNOWN_ADDRESSES} addresses guess that user's password and other names. \`/health\`: ${HEALTH_REQUESTS} requests alone, and ${HEALTH_REQUESTS} while ${READERS} clients with different addresses fetch \`/docs\`, \`/redoc\`, their files and \`/openapi.json\`; medians of ${ROUNDS} rounds. Then once more with all clients on one address, which soon exceeds its limit.`,
      figures: [
        {
          what: "a sign-in of a known user, without load",
          value: `${milliseconds(median(signInsAlone))}, the longest ${milliseconds(Math.max(...signInsAlone))}`,
          comparedWith: `${milliseconds(hashMs)}, one hash by scrypt in this process`,
        },
        {
          what: `the longest sign-in of a known user, while ${UNKNOWN_ADDRESSES} addresses guess passwords`,
          value: `${(longestSignInMs / 1000).toFixed(2)} s, the median ${milliseconds(median(signInsUnderLoad.result))}`,
          // The service computes one password hash at a time, and a known address skips the queue. So a sign-in waits for at most
          // the hash in progress.
          comparedWith: `${describeCrowds([signInsUnderLoad])}; it waits for at most one unknown address`,
          bound: atMost(longestSignInMs / 1000, SIGN_IN_LIMIT, " s"),
        },
        {
          what: "/health, alone",
          value: formatRange(healthAlone.map(median)),
          comparedWith: "the shortest time counts",
        },
        healthFigure("fetch the documentation's files", healthUnderLoad, "at most 50 files are sent a second"),
        healthFigure("are over their limit", [healthUnderRejections], "at most 100 rejections are sent a second"),
        {
          // Expected are 429, 200 for documentation, and 401 for a wrong password.
          what: "unexpected responses to the crowds",
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

/** Result of work that was done under load, processor time of the functions process (`ms`), and the responses to the crowd. */
type Measured<T> = CrowdDone & { result: T; ms: number };

/** Starts the child process with the clients. They send requests only while `during` runs. */
function startCrowd(service: Service) {
  const child = fork(path.resolve(import.meta.dirname, "front-door-clients.ts"));
  return {
    /**
     * Runs the work while the clients send requests.
     * @throws Error if the clients finished before the work did.
     */
    async during<T>(crowd: Pick<Crowd, "clients" | "requests">, work: () => Promise<T>): Promise<Measured<T>> {
      const childExit = new AbortController();
      const { result, ms } = await withProcessorTime(service.url, async () => {
        const reply = once(child, "message", { signal: childExit.signal });
        child.once("exit", () => childExit.abort(new Error("The crowd's process ended")));
        let isCrowdDone = false;
        const totals = reply.then(([message]) => {
          isCrowdDone = true;
          return message as CrowdDone;
        });
        child.send({ ...crowd, ...CROWD_BOUNDS, url: service.url } satisfies Crowd);
        await delay(CROWD_START_MS);
        const measured = await work();
        if (isCrowdDone) throw new Error("The clients reached their limits before the work was done");
        child.send("enough");
        return { ...(await totals), result: measured };
      });
      return { ...result, ms };
    },
    stop: () => child.kill(),
  };
}

/**
 * Guesses the password of the administrator, and of users that do not exist, from many addresses. The clients replace `{client}`
 * and `{round}` by numbers, so that each request names another user.
 */
const PASSWORD_GUESSING: Pick<Crowd, "clients" | "requests"> = {
  clients: Array.from({ length: UNKNOWN_ADDRESSES }, (_, index) => `203.0.113.${index}`),
  requests: [ADMIN.username, "name{client}-{round}"].map((username) => ({
    method: "POST",
    path: "/auth/login",
    body: JSON.stringify({ username, password: "a wrong password" }),
  })),
};

/** Returns requests for the documentation pages, the files that they load, and the API description. Sends each of them once. */
async function documentationRequests(url: string): Promise<Crowd["requests"]> {
  const pages = ["/docs", "/redoc"];
  const texts = await Promise.all(pages.map(async (page) => await (await fetch(url + page)).text()));
  const files = texts.flatMap((text) => [...text.matchAll(/(?:src|href)="(\/docs\/files\/[^"]+)"/g)]);
  const paths = [...new Set([...pages, ...files.map(([, file]) => file!), "/openapi.json"])];
  // Warms up the service, so that no measurement includes work that is done only on first use.
  for (const file of paths) await (await fetch(url + file)).arrayBuffer();
  return paths.map((file) => ({ method: "GET", path: file }));
}

/** Signs in `count` times from an address and returns the duration of each request in milliseconds. */
async function timeSignIns(url: string, address: string, count: number): Promise<number[]> {
  const headers = { "Content-Type": "application/json", "X-Forwarded-For": address };
  const options = { method: "POST", headers, body: JSON.stringify(ADMIN) };
  return await timeRequests(`${url}/auth/login`, options, count, SIGN_IN_PAUSE_MS);
}

const timeHealth = async (url: string): Promise<number[]> =>
  await timeRequests(`${url}/health`, {}, HEALTH_REQUESTS, HEALTH_PAUSE_MS);

/** Sends the same request `count` times, one after the other, and returns the duration of each in milliseconds. */
async function timeRequests(
  url: string,
  options: Parameters<typeof sendTimedRequest>[2],
  count: number,
  pauseMs: number,
): Promise<number[]> {
  const agent = new http.Agent({ keepAlive: true });
  const durations: number[] = [];
  for (let sent = 0; sent < count; sent++) {
    const response = await sendTimedRequest(agent, url, options);
    if (response.status !== 200) throw new Error(`${url} answered ${response.status}`);
    durations.push(response.milliseconds);
    await delay(pauseMs);
  }
  agent.destroy();
  return durations;
}

/** Describes the responses that the clients received, and their cost in the functions process. */
function describeCrowds(crowds: Measured<unknown>[]): string {
  const countOf = (status: string) => sum(crowds.map(({ statuses }) => statuses[status] ?? 0));
  const responses = sum(crowds.map(({ statuses }) => countOtherStatuses(statuses)));
  const seconds = sum(crowds.map((crowd) => crowd.seconds));
  const megabytes = sum(crowds.map(({ bytes }) => bytes)) / 1_000_000;
  const answers = ["200", "401", "429"].flatMap((status) =>
    countOf(status) > 0 ? `${countOf(status)} answered ${status}` : [],
  );
  return `${answers.join(", ")} and ${megabytes.toFixed(0)} MB in ${seconds.toFixed(1)} s, ${milliseconds(sum(crowds.map(({ ms }) => ms)) / responses)} of the processor each`;
}

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
const milliseconds = (value: number): string => `${value.toFixed(1)} ms`;
/** Formats the shortest duration, followed by the longest one in parentheses. */
const formatRange = (values: number[]): string =>
  values.length > 1
    ? `${milliseconds(Math.min(...values))} (to ${Math.max(...values).toFixed(1)})`
    : milliseconds(values[0]!);

/** Returns the milliseconds that this machine currently needs for one password hash. */
async function timeHash(): Promise<number> {
  const passwords = createPasswords({ randomness: systemRandomness() });
  const durations: number[] = [];
  for (let run = 0; run < HASHES; run++) {
    const started = performance.now();
    await passwords.hash(ADMIN.password);
    durations.push(performance.now() - started);
  }
  return median(durations);
}

/** Returns the number of responses whose status is not one of `expected`. */
function countOtherStatuses(statuses: Record<string, number>, ...expected: string[]): number {
  return sum(Object.entries(statuses).map(([status, count]) => (expected.includes(status) ? 0 : count)));
}
