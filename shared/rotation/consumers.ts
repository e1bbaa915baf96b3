import type { Publication } from "./rotation.ts";

/** One who uses a secret, and what it holds as far as that can be seen. */
export interface Consumer {
  name: string;
  kind: string;
  holds: "new" | "old" | "unknown";
}

export interface ConsumerReport {
  consumers: Consumer[];
  /** What could not be looked into, as sentences. */
  coverage: string[];
  /** Consumers had to be refreshed and some could not be: the old value is put back. */
  failed?: string;
  /** The longest that a consumer takes by itself to hold a new value, in seconds. */
  slowestSeconds: number;
}

/** Who uses the key vault secrets that a rotation writes. */
export interface Consumers {
  /** Has those refreshed that can be, once, and says what each holds. May be called again for the same publications. */
  refresh(publications: readonly Publication[]): Promise<ConsumerReport>;
  /** Says what each holds now. */
  look(publications: readonly Publication[]): Promise<ConsumerReport>;
}

/** Knows of no consumer, and says so. */
export function unknownConsumers(): Consumers {
  const report = async (): Promise<ConsumerReport> => ({
    consumers: [],
    coverage: ["Who reads the key vault secrets was not looked into: apps that keep the old value are not seen here."],
    slowestSeconds: 0,
  });
  return { refresh: report, look: report };
}
