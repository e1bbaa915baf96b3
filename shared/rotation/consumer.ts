import * as z from "zod";

/** One who uses what a rotation writes, as the plan found it. */
export const PlannedConsumer = z.object({
  /** The resource's id. */
  id: z.string(),
  kind: z.string(),
  name: z.string(),
  environment: z.string().optional(),
  /**
   * Which of the written secrets it uses. Of one that signs in as the application itself `entra.<tenant id>` and the client
   * id: see `Edge` of the dependencies.
   */
  vaultName: z.string(),
  secretName: z.string(),
  /** The name of its setting, variable or field. */
  evidence: z.string(),
  /** See `Refresh` of the dependencies. */
  how: z.enum(["automatic", "action", "blind", "willBreak"]),
  /** It keeps a copy of the value: only an action changes it, and a look tells no more than whether it works. */
  copy: z.boolean().optional(),
  /** What its action noted, for a look to tell by whether it has had its effect. */
  mark: z.string().optional(),
  /** The longest that it takes by itself to hold a new value; 0 when that is not known. */
  slowestSeconds: z.int(),
  /** How much breaks with it: the smallest is acted on first. */
  blast: z.int(),
});
export type PlannedConsumer = z.infer<typeof PlannedConsumer>;

/**
 * What a consumer holds as far as that can be seen: the version that was asked for (`new`), another one (`old`), or it does
 * not use the secret any more (`gone`). `problem` in words for people when it can't take the version.
 */
export interface ConsumerSight {
  holds: "new" | "old" | "gone" | "unknown";
  problem?: string;
}

/** What a consumer is to hold. */
export interface WantedVersion {
  /** The current version of the secret, or the key id of the client secret. */
  version: string;
  /** Its value, for a consumer that keeps a copy; read only when it is asked for. */
  value(): Promise<string>;
  /** Whether an app that reads its settings only when it starts may be restarted. */
  restart: boolean;
}

/** What an action did. */
export interface Acted {
  /** What somebody else changed of the consumer in the same moment, by its names. */
  changedMeanwhile: string[];
  /** See `PlannedConsumer`. */
  mark?: string;
}

/** Who uses the key vault secrets that a rotation writes, and how they get the new value. */
export interface ConsumersOfSecrets {
  /**
   * Those known now, one for each resource and secret, and as sentences what could not be looked into. Without those who may
   * read a secret and are not known to do so.
   *
   * @param written.appId - The application whose client secret is replaced.
   */
  of(written: {
    places: readonly { vaultName: string; secretName: string }[];
    appId?: string | undefined;
  }): Promise<{ consumers: PlannedConsumer[]; coverage: string[] }>;
  /**
   * Has one with an `action` take the current version. May be called again.
   *
   * @throws {CloudFailure}: one that is not `unclear` says that nothing was done.
   */
  act(consumer: PlannedConsumer, wanted: WantedVersion): Promise<Acted>;
  /**
   * @param version - The one that it is to hold.
   * @param since - When it was written, or the consumer was last acted on.
   * @throws {CloudFailure}
   */
  look(consumer: PlannedConsumer, version: string, since: Date): Promise<ConsumerSight>;
}

/** Knows of no consumer, and says so. */
export function unknownConsumers(): ConsumersOfSecrets {
  return {
    of: async () => ({
      consumers: [],
      coverage: [
        "Who reads the key vault secrets was not looked into: apps that keep the old value are not seen here.",
      ],
    }),
    act: () => Promise.reject(new Error("Nobody is known who could be acted on.")),
    look: async () => ({ holds: "unknown" }),
  };
}
