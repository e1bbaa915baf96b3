import type { GraphApplication } from "../azure/graph.ts";

/** A key vault secret that holds a client secret of an application, or may hold it. */
export interface Target {
  vaultName: string;
  vaultUri: string;
  secretName: string;
  /** How sure it is; `certain` ones are written by a rotation, others only after a person confirmed them. */
  confidence: "certain" | "likely" | "possible";
  /** A person said that it holds this credential. */
  confirmed: boolean;
}

/** Which key vault secrets hold which client secret. No value is read to find them. */
export interface Matches {
  /** All that hold, or may hold, the client secret `keyId`; never one of the service's own vault. */
  targetsOf(app: GraphApplication, keyId: string): Promise<Target[]>;
}

/** Whether a rotation writes to it. */
export const isWritten = ({ confidence, confirmed }: Target): boolean => confidence === "certain" || confirmed;
