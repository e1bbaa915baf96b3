import type { GraphApplication } from "../platform/azure/graph.ts";
import type { RotationRecord } from "./rotation.ts";

/** A key vault secret by its names, which are compared without regard to case. */
export interface Place {
  vaultName: string;
  secretName: string;
}

/** A key vault secret that holds a client secret of an application, or may hold it. */
export interface Target extends Place {
  vaultUri: string;
  /** The vault's resource id: a vault of the same name may be made elsewhere once this one is gone. */
  vaultId: string;
  /** `certain`: a person confirmed the version that it has now, or the value of that version signed in. */
  confidence: "certain" | "likely" | "possible";
  /**
   * Why a rotation may write to it beside that. `confirmed`: a person confirmed the version that it has now. `rotated`: an
   * earlier rotation wrote it. `new`: neither, as with a copy that a thief of the value put into a vault of their own.
   */
  standing: "confirmed" | "rotated" | "new";
  /** Unix seconds: when the version that it has now was created, by Key Vault's clock. Set where `confidence` is `certain`. */
  heldSince?: number | undefined;
  /** The vault refuses for good to show the value or its versions, such as by its firewall. */
  unreadable?: boolean;
}

/** Which key vault secrets hold which client secret. No value is read to find them. */
export interface Matches {
  /**
   * All that hold, or may hold, the client secret `keyId`; never one of the service's own vault.
   *
   * @throws {CloudFailure} that may pass: what could not be asked is never left out.
   */
  targetsOf(app: GraphApplication, keyId: string): Promise<Target[]>;
  /** Records the places that a completed rotation wrote: their standing is `rotated` from now on. May be called again. */
  keepWritten(rotation: RotationRecord): Promise<void>;
}

/** Whether it surely holds the client secret. A rotation writes to no other places, and not to all of these: see `choosePlaces`. */
export const isCertain = ({ confidence }: Pick<Target, "confidence">): boolean => confidence === "certain";

/** Tells places apart, whatever the case of their names. */
export const placeKey = ({ vaultName, secretName }: Place): string => `${vaultName}/${secretName}`.toLowerCase();
