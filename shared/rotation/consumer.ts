import * as z from "zod";

/** A resource that uses a secret which a rotation writes, as found during the plan. `RotationConsumer` adds its progress. */
export const PlannedConsumer = z.object({
  /** Azure resource ID. */
  id: z.string(),
  kind: z.string(),
  name: z.string(),
  environment: z.string().optional(),
  /**
   * The vault secret that the consumer uses. If the consumer signs in as the application with its own copy of the client secret:
   * `entra.<tenant id>` as the vault, and the client ID as the secret.
   */
  vaultName: z.string(),
  secretName: z.string(),
  /** Name of the setting, variable or field that references the secret. */
  evidence: z.string(),
  /**
   * How the consumer gets a new value. `automatic`: the consumer reads the value by itself. `action`: the service refreshes the
   * consumer. `blind`: the service can neither refresh the consumer nor see its value. `willBreak`: the consumer keeps the old
   * value.
   */
  how: z.enum(["automatic", "action", "blind", "willBreak"]),
  /** The consumer stores a copy of the value. Only a refresh changes it, and a check shows only whether the refresh worked. */
  copy: z.boolean().optional(),
  /** Names of the keys of an Azure resource that the consumer stores as a copy, when its settings were last compared. */
  keyNames: z.array(z.string()).optional(),
  /**
   * The consumer stores a copy of a client secret, and no rotation has written that copy. Anyone who once had the value could
   * have created the copy, so the consumer gets a new value only if the request names it.
   */
  newPlace: z.boolean().optional(),
  /** Marker that the refresh returned, so that a later check can recognize its effect. */
  mark: z.string().optional(),
  /** Longest time until the consumer reads a new value by itself. 0 if unknown. */
  slowestSeconds: z.int(),
  /**
   * Number that says how many other resources a failure of this consumer affects. Consumers with the smallest number are
   * refreshed first.
   */
  blast: z.int(),
});
export type PlannedConsumer = z.infer<typeof PlannedConsumer>;

/**
 * Value that a consumer has: the requested version (`new`) or another one (`old`). `gone`: the consumer no longer uses the
 * secret. `problem` is a text for users that says why the consumer can't read the version.
 */
export interface ConsumerCheck {
  holds: "new" | "old" | "gone" | "unknown";
  problem?: string;
}

/** Why a consumer can't use the secret that it references, or can't sign in with its copy. */
export interface ConsumerProblem {
  /** Text for users. */
  text: string;
  /** Whether the problem may pass without a user's action, so that the consumer may work afterwards. */
  canPass: boolean;
}

/** The version that a refresh brings to a consumer. */
export interface RefreshRequest {
  /** Current version of the vault secret, or key ID of the client secret. */
  version: string;
  /** Reads the value. Called only for a consumer that stores a copy of it. */
  value(): Promise<string>;
  /** Whether to restart an app that reads its settings only when it starts. */
  restart: boolean;
}

/** Result of a refresh. */
export interface RefreshResult {
  /** Names of the consumer's properties that another writer changed at the same time. */
  changedMeanwhile: string[];
  /** See `PlannedConsumer`. */
  mark?: string;
}

/** Finds the consumers of secrets that a rotation writes, refreshes and checks them. Implemented by `shared/dependencies`. */
export interface ConsumersOfSecrets {
  /**
   * Returns the known consumers, one for each resource and secret, and sentences about scopes that could not be read. Leaves
   * out identities that have access but no known use.
   *
   * `unread` has sentences, also in `coverage`, about known consumers that could not be read.
   *
   * @param written.appId - Client ID of the application whose client secret is replaced. Undefined for other secrets.
   */
  findConsumers(written: {
    places: readonly { vaultName: string; secretName: string }[];
    appId?: string | undefined;
  }): Promise<{ consumers: PlannedConsumer[]; coverage: string[]; unread?: string[] }>;
  /**
   * Returns why a consumer can't use the secret. Called before the rotation writes anything. Undefined if it can, or if that
   * can't be seen. Anyone can reference any secret, so a consumer with such a problem proves no right on it.
   *
   * @throws {CloudFailure}
   */
  currentProblem(consumer: PlannedConsumer): Promise<ConsumerProblem | undefined>;
  /**
   * Makes a consumer with `how: "action"` read the current version. Safe to repeat.
   *
   * @throws {CloudFailure} If the failure is not `unclear`, nothing was changed.
   */
  refresh(consumer: PlannedConsumer, wanted: RefreshRequest): Promise<RefreshResult>;
  /**
   * Returns which version a consumer has.
   *
   * @param version - The expected version.
   * @param since - When that version was written, or the consumer was last refreshed.
   * @throws {CloudFailure}
   */
  check(consumer: PlannedConsumer, version: string, since: Date): Promise<ConsumerCheck>;
}

/** Returns an implementation without dependency data: it finds no consumers and says so in `coverage`. */
export function unknownConsumers(): ConsumersOfSecrets {
  return {
    findConsumers: async () => ({
      consumers: [],
      coverage: [
        "Dependencies are not available, so the consumers of the key vault secrets are unknown: apps that still use the old value are not listed here.",
      ],
    }),
    currentProblem: async () => undefined,
    refresh: () => Promise.reject(new Error("There are no known consumers to refresh.")),
    check: async () => ({ holds: "unknown" }),
  };
}
