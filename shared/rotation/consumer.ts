import * as z from "zod";

/** A consumer of a written secret, as planned. `RotationConsumer` adds its progress. */
export const PlannedConsumer = z.object({
  /** Azure resource ID. */
  id: z.string(),
  kind: z.string(),
  name: z.string(),
  environment: z.string().optional(),
  /**
   * The written secret that it uses. For a consumer that signs in as the application itself: `entra.<tenant id>` and the client
   * ID, see `Edge` of the dependencies.
   */
  vaultName: z.string(),
  secretName: z.string(),
  /** Name of the setting, variable or field that references the secret. */
  evidence: z.string(),
  /** See `Refresh` of the dependencies. */
  how: z.enum(["automatic", "action", "blind", "willBreak"]),
  /** The consumer stores a copy of the value. Only a refresh changes it, and a check shows only whether the refresh worked. */
  copy: z.boolean().optional(),
  /** Marker that the refresh returned, so that a later check can recognize its effect. */
  mark: z.string().optional(),
  /** Longest time until it reads a new value without help. 0 if unknown. */
  slowestSeconds: z.int(),
  /** Size of its blast radius. Consumers with the smallest are refreshed first. */
  blast: z.int(),
});
export type PlannedConsumer = z.infer<typeof PlannedConsumer>;

/**
 * Which value a consumer has: the requested version (`new`), another one (`old`), or the consumer no longer uses the secret
 * (`gone`). `problem` is a text for users if it can't take the version.
 */
export interface ConsumerCheck {
  holds: "new" | "old" | "gone" | "unknown";
  problem?: string;
}

/** The version that a refresh brings to a consumer. */
export interface RefreshRequest {
  /** Current version of the vault secret, or key ID of the client secret. */
  version: string;
  /** Reads the value, for a consumer that stores a copy. Called only if needed. */
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
   * @param written.appId - The application whose client secret is replaced.
   */
  of(written: {
    places: readonly { vaultName: string; secretName: string }[];
    appId?: string | undefined;
  }): Promise<{ consumers: PlannedConsumer[]; coverage: string[] }>;
  /**
   * Makes a consumer with `how: "action"` read the current version. Safe to repeat.
   *
   * @throws {CloudFailure} If it is not `unclear`, nothing was changed.
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
    of: async () => ({
      consumers: [],
      coverage: [
        "Dependencies are not available, so the consumers of the key vault secrets are unknown: apps that keep the old value are not listed here.",
      ],
    }),
    refresh: () => Promise.reject(new Error("There are no known consumers to refresh.")),
    check: async () => ({ holds: "unknown" }),
  };
}
