import * as z from "zod";
import { fingerprint } from "../inventory/asset.ts";
import type { CertificateFacts } from "../inventory/certificate-facts.ts";
import type { AriWindow } from "../inventory/renewal.ts";
import type { Config } from "../platform/config/config.ts";
import { createOutgoing, hostAndPort, type Outgoing, Unreachable } from "../platform/outgoing/outgoing.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_SECONDS, HOUR_MS, HOUR_SECONDS, LATEST_TIME, MINUTE_SECONDS, SECOND_MS } from "../platform/time.ts";

/**
 * Client of ACME renewal information (RFC 9773): asks the authority of a certificate when to renew the certificate. One unsigned
 * request per certificate, without an account, to the authorities that the setting ARI_DIRECTORIES names.
 */

/** Limits of one request. The largest answer is an ACME directory, which has a few links (RFC 8555, section 7.1.1). */
const LIMITS = { timeoutMs: 5 * SECOND_MS, maxAnswerBytes: 64 * 1024 };
/** Authorities reject requests without a User-Agent: RFC 8555, section 6.1. */
const HEADERS = { accept: "application/json", "user-agent": "credential-lifecycle" };
/** Time until the next request if the authority names none: RFC 9773, section 4.3.2. */
const DEFAULT_WAIT_SECONDS = 6 * HOUR_SECONDS;
/** Limits of the time that an authority names in Retry-After. Section 4.3.2 asks clients to limit it. */
const MIN_WAIT_SECONDS = MINUTE_SECONDS;
const MAX_WAIT_SECONDS = DAY_SECONDS;
/** Time for which the response of an authority's directory is cached. */
const DIRECTORY_AGE_MS = HOUR_MS;
/**
 * After this number of failed requests in a row (no answer, 429 or 5xx), an authority gets no requests for up to an hour.
 * Otherwise each vault of a scan would wait for the time limit of its requests.
 */
const FAILURES_BEFORE_PAUSE = 3;
const MAX_PAUSE_SECONDS = HOUR_SECONDS;
/**
 * Maximum bytes of each part of an identifier. Authorities use at most 20 (RFC 5280, sections 4.1.2.2 and 4.2.1.2). An imported
 * certificate can have any number, and the vault's row stores the identifier.
 */
const MAX_ID_PART_BYTES = 64;

const Directory = z.object({ renewalInfo: z.url({ protocol: /^https$/ }).optional() });
const instant = z.iso
  .datetime({ offset: true })
  .transform((text) => Math.floor(Date.parse(text) / SECOND_MS))
  .pipe(z.int().min(0).max(LATEST_TIME));
const Answer = z.object({ suggestedWindow: z.object({ start: instant, end: instant }) });

/** Thrown if an authority returned no window. */
export class NoRenewalInformation extends Error {
  override readonly name = "NoRenewalInformation";
  /** Unix seconds before which the authority gets no further request. */
  readonly retryAfter: number;
  /** True if the authority did not answer, or was overloaded (429 and 5xx). */
  readonly isUnreachable: boolean;

  constructor(message: string, details: { retryAfter: number; isUnreachable?: boolean }) {
    super(message);
    this.retryAfter = details.retryAfter;
    this.isUnreachable = details.isUnreachable ?? false;
  }
}

/** Asks certificate authorities when certificates should be renewed. */
export interface RenewalInformation {
  /** Whether any authority is configured. */
  readonly isConfigured: boolean;
  /** Hash of the configured authorities. If it changes, certificates can have an authority that was not asked yet. */
  readonly configuration: string;
  /** Returns the ACME directory of an issuer. Undefined if none is configured. */
  directoryOf(issuer: string | undefined): string | undefined;
  /**
   * Returns the window that the authority suggests.
   *
   * @param certificateId - Result of `certificateIdOf`.
   * @throws {NoRenewalInformation}
   */
  windowOf(directory: string, certificateId: string, signal?: AbortSignal): Promise<AriWindow>;
}

/**
 * Returns the identifier of a certificate: RFC 9773, section 4.1. Undefined without a serial number or an authority key
 * identifier, or if one of them is longer than those of any authority.
 */
export function certificateIdOf(facts: CertificateFacts | undefined): string | undefined {
  const { authorityKeyId, serialNumber } = facts ?? {};
  if (!authorityKeyId || !serialNumber) return undefined;
  const parts = [authorityKeyId, serialNumber].map((hex) => Buffer.from(hex, "hex"));
  if (parts.some(({ length }) => length > MAX_ID_PART_BYTES)) return undefined;
  return parts.map((part) => part.toString("base64url")).join(".");
}

/** Creates the client of the configured certificate authorities. */
export function createRenewalInformation(deps: {
  config: Pick<Config, "ARI_DIRECTORIES">;
  clock: Clock;
  outgoing?: Outgoing;
}): RenewalInformation {
  const { clock } = deps;
  const directories = deps.config.ARI_DIRECTORIES;
  const configuredHosts = new Set(directories.map(({ directory }) => hostAndPort(new URL(directory))));
  const outgoing =
    deps.outgoing ??
    createOutgoing({
      ...LIMITS,
      // The environment names the directories, so that they can be in the service's own network.
      allowedNetwork: (url) => (configuredHosts.has(hostAndPort(url)) ? "named" : "public"),
      plainHttp: () => false,
      remedy: "ARI_DIRECTORIES names the authorities that may be asked.",
    });
  /** Answers of directories: the address of renewal information, or why there is none. */
  const knownDirectories = new Map<string, { answer: { address: string } | { problem: string }; readAt: number }>();
  /**
   * By directory: the number of failed requests in a row (`failures`), and the Unix second from which the authority may get a
   * request again (`until`).
   */
  const failing = new Map<string, { failures: number; until: number }>();

  const nowSeconds = (): number => Math.floor(clock.now().getTime() / SECOND_MS);
  const failure = (message: string, wait = DEFAULT_WAIT_SECONDS, isUnreachable = false): NoRenewalInformation =>
    new NoRenewalInformation(message, { retryAfter: nowSeconds() + wait, isUnreachable });

  /** Returns the parsed answer, and the seconds until the next request. */
  async function getJson<S extends z.ZodType>(
    address: string,
    schema: S,
    signal: AbortSignal | undefined,
  ): Promise<{ value: z.output<S>; wait: number }> {
    const { hostname } = new URL(address);
    const answer = await outgoing
      .send(address, { method: "GET", headers: HEADERS, ...(signal && { signal }) })
      .catch((error: unknown) => {
        if (!(error instanceof Unreachable)) throw error;
        // Sooner than DEFAULT_WAIT_SECONDS, because an outage is usually short.
        throw failure(error.message, HOUR_SECONDS, true);
      });
    const wait = waitOf(answer.headers["retry-after"], clock.now());
    if (answer.status !== 200) {
      const isUnreachable = answer.status === 429 || answer.status >= 500;
      throw failure(`${hostname} answered ${answer.status}.`, wait, isUnreachable);
    }
    const parsed = answer.complete ? schema.safeParse(jsonOf(answer.body)) : undefined;
    if (!parsed?.success) throw failure(`${hostname} sent an answer that RFC 9773 does not allow.`, wait);
    return { value: parsed.data, wait };
  }

  async function addressOf(directory: string, signal: AbortSignal | undefined): Promise<string> {
    const known = knownDirectories.get(directory);
    const isCurrent = known && clock.now().getTime() - known.readAt < DIRECTORY_AGE_MS;
    const answer = isCurrent ? known.answer : await readDirectory(directory, signal);
    if (!isCurrent) knownDirectories.set(directory, { answer, readAt: clock.now().getTime() });
    if ("problem" in answer) throw failure(answer.problem);
    return answer.address;
  }

  /**
   * Returns the address of renewal information, or why the directory offers none.
   *
   * @throws {NoRenewalInformation} if the authority did not answer or was overloaded. The next request can succeed, so this is not
   * remembered.
   */
  async function readDirectory(
    directory: string,
    signal: AbortSignal | undefined,
  ): Promise<{ address: string } | { problem: string }> {
    try {
      const { renewalInfo } = (await getJson(directory, Directory, signal)).value;
      if (renewalInfo) return { address: renewalInfo.replace(/\/$/, "") };
      return { problem: `${new URL(directory).hostname} offers no renewal information.` };
    } catch (error) {
      if (!(error instanceof NoRenewalInformation) || error.isUnreachable) throw error;
      return { problem: error.message };
    }
  }

  /** Sends a request to an authority. @throws {NoRenewalInformation} without a request while the authority is paused. */
  async function unlessPaused<T>(
    directory: string,
    signal: AbortSignal | undefined,
    request: () => Promise<T>,
  ): Promise<T> {
    const { failures, until } = failing.get(directory) ?? { failures: 0, until: 0 };
    const wait = until - nowSeconds();
    if (failures >= FAILURES_BEFORE_PAUSE && wait > 0)
      throw failure(`${new URL(directory).hostname} did not answer earlier requests.`, wait, true);
    try {
      const result = await request();
      failing.delete(directory);
      return result;
    } catch (error) {
      // A scan that ends during the request says nothing about the authority.
      if (!(error instanceof NoRenewalInformation) || signal?.aborted) throw error;
      if (error.isUnreachable)
        failing.set(directory, {
          failures: (failing.get(directory)?.failures ?? 0) + 1,
          until: Math.min(error.retryAfter, nowSeconds() + MAX_PAUSE_SECONDS),
        });
      else failing.delete(directory);
      throw error;
    }
  }

  return {
    isConfigured: directories.length > 0,
    configuration: fingerprint(directories),

    directoryOf(issuer) {
      const text = issuer?.toLowerCase();
      return text && directories.find(({ issuer: name }) => text.includes(name.toLowerCase()))?.directory;
    },

    windowOf: (directory, certificateId, signal) =>
      unlessPaused(directory, signal, async () => {
        const address = await addressOf(directory, signal);
        const { value, wait } = await getJson(`${address}/${certificateId}`, Answer, signal);
        const { start, end } = value.suggestedWindow;
        if (end <= start) throw failure(`${new URL(address).hostname} suggested a window that ends before it starts.`);
        const checkedAt = nowSeconds();
        return { windowStart: start, windowEnd: end, checkedAt, retryAfter: checkedAt + wait };
      }),
  };
}

function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

/** Returns the seconds of the header `Retry-After`, a number or a date, within the limits. */
function waitOf(header: string | undefined, now: Date): number {
  if (header === undefined) return DEFAULT_WAIT_SECONDS;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - now.getTime()) / SECOND_MS;
  if (!Number.isFinite(seconds)) return DEFAULT_WAIT_SECONDS;
  return Math.min(Math.max(Math.ceil(seconds), MIN_WAIT_SECONDS), MAX_WAIT_SECONDS);
}
