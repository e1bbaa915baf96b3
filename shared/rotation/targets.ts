import type { CloudFailure } from "../platform/azure/failure.ts";
import type { GraphApplication } from "../platform/azure/graph.ts";
import type { RotationRecord } from "./rotation.ts";

/** A place: a key vault secret that a rotation may write, by its names. Names are compared without regard to case. */
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
   * Why the place is a known place, which a rotation may write. `confirmed`: a user confirmed its current version. `rotated`: an
   * earlier rotation wrote it. `new`: the place is not known. It could be an attacker's vault with a copy of the value.
   */
  knownAs: "confirmed" | "rotated" | "new";
  /** Creation time of the current version by Key Vault's clock, in Unix seconds. Set if `confidence` is `certain`. */
  heldSince?: number | undefined;
  /** True if the vault denies access to the secret, for example by its firewall. */
  unreadable?: boolean;
  /**
   * Why the service can't tell now whether the place stores the client secret. Set only for a place that no user confirmed and
   * no rotation wrote.
   */
  unanswered?: CloudFailure;
}

/** Finds the key vault secrets that store a client secret. */
export interface Matches {
  /**
   * Returns all places that store, or may store, the client secret `keyId`, except those in the service's own vault.
   *
   * @throws {CloudFailure} if a place that a user confirmed or a rotation wrote can't be read now.
   */
  targetsOf(app: GraphApplication, keyId: string): Promise<Target[]>;
  /** Records the places that a completed rotation wrote, so that they are known as `rotated`. Safe to repeat. */
  recordWrittenPlaces(rotation: RotationRecord): Promise<void>;
}

/**
 * Returns whether the place certainly stores the client secret. `choosePlaces` decides which certain places a rotation writes.
 */
export const isCertain = ({ confidence }: Pick<Target, "confidence">): boolean => confidence === "certain";

/** Returns a case-insensitive key that identifies a place. */
export const placeKey = ({ vaultName, secretName }: Place): string => `${vaultName}/${secretName}`.toLowerCase();
