import type { GraphApplication } from "../platform/azure/graph.ts";
import type { RotationRecord } from "./rotation.ts";

/** A place: a key vault secret by its names, which are compared case-insensitively. */
export interface Place {
  vaultName: string;
  secretName: string;
}

/** A place that stores, or may store, a client secret of an application. */
export interface Target extends Place {
  vaultUri: string;
  /** Resource ID of the vault. After this vault is deleted, another one may get its name. */
  vaultId: string;
  /** `certain`: a user confirmed the current version, or its value signed in. */
  confidence: "certain" | "likely" | "possible";
  /**
   * Why a rotation may write to a certain place. `confirmed`: a user confirmed the current version. `rotated`: an earlier
   * rotation wrote it. `new`: neither. An attacker may have put a copy of the value into their own vault.
   */
  standing: "confirmed" | "rotated" | "new";
  /** Creation time of the current version by Key Vault's clock, in Unix seconds. Set if `confidence` is `certain`. */
  heldSince?: number | undefined;
  /** The vault permanently denies access to the value or its versions, for example by its firewall. */
  unreadable?: boolean;
}

/** Finds the key vault secrets that store a client secret. */
export interface Matches {
  /**
   * Returns all places that store, or may store, the client secret `keyId`, except those in the service's own vault.
   *
   * @throws {CloudFailure} if a read fails temporarily. No place is left out because it could not be read.
   */
  targetsOf(app: GraphApplication, keyId: string): Promise<Target[]>;
  /** Records the places that a completed rotation wrote. Their standing is `rotated` from then on. Safe to repeat. */
  keepWritten(rotation: RotationRecord): Promise<void>;
}

/**
 * Returns whether the place certainly stores the client secret. A rotation writes only certain places, and not all of them: see
 * `choosePlaces`.
 */
export const isCertain = ({ confidence }: Pick<Target, "confidence">): boolean => confidence === "certain";

/** Returns a case-insensitive key that identifies a place. */
export const placeKey = ({ vaultName, secretName }: Place): string => `${vaultName}/${secretName}`.toLowerCase();
