import { createHash, createHmac } from "node:crypto";
import * as z from "zod";
import type { Clock, Randomness } from "../runtime.ts";
import { isConflict, undefinedIfChanged } from "../storage/conflict.ts";
import { entity, type Row } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../time.ts";
import { IDEMPOTENCY_HEADER } from "./idempotency-headers.ts";
import { Problem } from "./problem.ts";

/**
 * Requests with an `Idempotency-Key`: a repeat of a request gets the answer of the first one, which takes effect once.
 *
 * A row is reserved before the request runs, and completed after it. A process that crashes in between leaves a reservation. A
 * repeat never runs such a request again, because it may have taken effect: it answers that the outcome is unknown.
 *
 * Neither the body of a request nor that of an answer is stored. A repeat reads the resource again.
 */

/** Time for which a key is remembered, as docs/api-habits.md promises. */
const VALID_MS = DAY_MS;
/**
 * A reservation without a result is abandoned after this time: longer than an invocation can take (`functionTimeout`,
 * host.json).
 */
const ABANDONED_AFTER_MS = 31 * MINUTE_MS;
/** Retry-After in seconds while the first request is in progress. */
const RETRY_SECONDS = 5;
/** 1 to 255 visible ASCII characters. */
const KEY = /^[\x21-\x7e]{1,255}$/;

const Reservation = z.object({
  /** `running`: in progress, or its process crashed. `done`: it succeeded. `unknown`: it failed and may have taken effect. */
  state: z.enum(["running", "done", "unknown"]),
  /** HMAC of the endpoint, the parameters and the body. */
  request: z.string(),
  requestId: z.string(),
  startedAt: z.string(),
  /** Set if the request is `done`: status of the answer, ID of the resource, and address of the resource. */
  status: z.int().optional(),
  resourceId: z.string().optional(),
  location: z.string().optional(),
  /** Random, so that a write whose answer was lost recognizes itself. */
  writeId: z.string(),
});
type Reservation = z.infer<typeof Reservation>;

/**
 * Signed, so that someone who can write tables can't let a repeat answer with another resource. Row key: hash of caller and
 * key.
 */
export const IdempotencyKeys = entity("IdempotencyKeys", Reservation, { signed: "withKeyVault", uniqueWrites: true });
/** The only partition. */
export const IDEMPOTENCY_KEYS = "keys";

/** A request with a key. */
export interface KeyedRequest {
  caller: string;
  key: string;
  requestId: string;
  /** Name of the endpoint, and the validated parameters and body. Everything that decides about the effect. */
  content: readonly unknown[];
}

/** The result of a request that succeeded. */
type Result = Required<Pick<Reservation, "status" | "resourceId">> & Pick<Reservation, "location">;

/** The stored requests with keys of the last 24 hours. */
export interface IdempotencyStore {
  /**
   * Reserves the key for a request, or returns the result of the same earlier request.
   *
   * @throws {Problem} invalidRequest for a malformed key; idempotencyKeyReused if the caller used it for another request;
   * requestInProgress; outcomeUnknown if the earlier request may have taken effect.
   */
  begin(request: KeyedRequest): Promise<{ reserved: Row<Reservation> } | { result: Result }>;
  /** Stores the result, which repeats of the request return. */
  complete(reserved: Row<Reservation>, result: Result): Promise<void>;
  /** Marks a request that failed and may have taken effect. */
  markUnknown(reserved: Row<Reservation>): Promise<void>;
  /** Removes the reservation of a request without effect, so that its key can be used again. */
  release(reserved: Row<Reservation>): Promise<void>;
  /** Removes rows that are older than 24 hours. */
  cleanUp(): Promise<void>;
}

export function createIdempotencyStore(deps: {
  tables: Tables;
  config: { JWT_SIGNING_KEYS: readonly { key: Uint8Array }[] };
  clock: Clock;
  randomness: Randomness;
}): IdempotencyStore {
  const { tables, config, clock, randomness } = deps;

  /**
   * Returns the HMACs of a request under each key, that of the current key first. Keyed, because a body can contain secrets.
   */
  function digestsOf({ caller, content }: KeyedRequest): string[] {
    const text = JSON.stringify([caller, ...content.map((part) => part ?? null)]);
    return config.JWT_SIGNING_KEYS.map(({ key }) =>
      createHmac("sha256", key).update(`idempotency\0${text}`).digest("base64url"),
    );
  }

  const isExpired = ({ startedAt }: Pick<Reservation, "startedAt">): boolean =>
    clock.now().getTime() - Date.parse(startedAt) >= VALID_MS;
  const write = (row: Row<Reservation>, change: Partial<Reservation>) =>
    tables.replace(IdempotencyKeys, { ...row, ...change, writeId: randomness.ulid(clock.now()) });

  return {
    // The age of a reservation is the storage's, not the clock's: with a wrong clock, a process must not treat it as abandoned.
    async begin(request) {
      if (!KEY.test(request.key))
        throw new Problem("invalidRequest", `${IDEMPOTENCY_HEADER} must have 1 to 255 visible ASCII characters.`);
      const digests = digestsOf(request);
      const rowKey = createHash("sha256").update(`${request.caller}\0${request.key}`).digest("hex");
      const now = clock.now();
      const reservation: Reservation = {
        state: "running",
        request: digests[0]!,
        requestId: request.requestId,
        startedAt: now.toISOString(),
        writeId: randomness.ulid(now),
      };
      const earlier = await tables.getWithAge(IdempotencyKeys, IDEMPOTENCY_KEYS, rowKey);
      try {
        if (earlier === undefined)
          return { reserved: await tables.insert(IdempotencyKeys, IDEMPOTENCY_KEYS, rowKey, reservation) };
        const { partitionKey, rowKey: key, etag } = earlier.row;
        if (isExpired(earlier.row))
          return {
            reserved: await tables.replace(IdempotencyKeys, { ...reservation, partitionKey, rowKey: key, etag }),
          };
      } catch (error) {
        // Another request with the same key has just reserved it.
        if (isConflict(error)) throw inProgress();
        throw error;
      }
      const { row, ageMs } = earlier;
      if (!digests.includes(row.request)) throw keyReused(row);
      const { state, status, resourceId, location } = row;
      if (state === "done" && status !== undefined && resourceId !== undefined)
        return { result: { status, resourceId, location } };
      if (state === "running" && ageMs < ABANDONED_AFTER_MS) throw inProgress();
      throw outcomeUnknown(row);
    },

    async complete(reserved, result) {
      await write(reserved, { state: "done", ...result });
    },
    async markUnknown(reserved) {
      await write(reserved, { state: "unknown" });
    },
    async release({ rowKey, etag }) {
      await tables.remove(IdempotencyKeys, IDEMPOTENCY_KEYS, rowKey, etag);
    },

    async cleanUp() {
      const range = { partitionKey: IDEMPOTENCY_KEYS, onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(IdempotencyKeys, range))
        for (const row of rows) {
          const { rowKey, etag } = row;
          // Stays if another request reserved the key again since.
          if (isExpired(row)) await undefinedIfChanged(tables.remove(IdempotencyKeys, IDEMPOTENCY_KEYS, rowKey, etag));
        }
    },
  };
}

const keyReused = ({ startedAt }: Reservation): Problem =>
  new Problem(
    "idempotencyKeyReused",
    `You sent another request with this ${IDEMPOTENCY_HEADER} at ${startedAt}. Use a new key for each request.`,
  );

const inProgress = (): Problem =>
  new Problem(
    "requestInProgress",
    `The first request with this ${IDEMPOTENCY_HEADER} is in progress. Try again soon.`,
    {
      headers: { "Retry-After": String(RETRY_SECONDS) },
    },
  );

const outcomeUnknown = ({ requestId, startedAt }: Reservation): Problem =>
  new Problem(
    "outcomeUnknown",
    `The first request with this ${IDEMPOTENCY_HEADER}, at ${startedAt}, was interrupted and may have taken effect, so it was not run again. Find out in the list of the resources, or in the audit log by the request ID ${requestId}. Then send what is missing with a new key.`,
    { members: { requestId, startedAt } },
  );
