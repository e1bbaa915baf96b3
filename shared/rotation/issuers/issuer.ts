import type { InventoryUpdates } from "../inventory-updates.ts";
import type { OnObstacle } from "../obstacles.ts";
import type { PlanDependencies } from "../plan-places.ts";
import type { CredentialRequest, PlanRequest, PlanWithoutConsumers } from "../request.ts";
import type { IssuerKind, RotationRecord, StepName } from "../rotation.ts";
import type { StepContext, StepDependencies } from "../step-context.ts";
import type { Target } from "../targets.ts";

/** A permission that the service's identity needs, named as in docs/rotation.md and in the doctor. */
export interface IssuerPermission {
  /** Name of the permission, such as `Application.ReadWrite.OwnedBy`. */
  name: string;
  /** Purpose of the permission. */
  purpose: string;
  /** True if rotations also work without the permission. */
  optional: boolean;
}

/** Result of comparing a value with the credentials of the rotated subject. `unclear`: a retry may give a clear result. */
export type TestResult = "accepted" | "rejected" | "unclear";

export interface ReasonsToKeepOld {
  /** Sentences for users. */
  reasons: string[];
  /** Places that store, or may store, the old value. The rotation itself knows which of them it writes. */
  targets: Target[];
}

/** Sentences for a user who must act. They name key IDs, never a value. */
export interface AttentionTexts {
  /** Whether the rotation created a new credential. */
  created: string;
  /** What is known about a started removal of the old credential. Absent if the removal was not started. */
  retiring?: { state: string; advice: string };
  /** Things that are unchanged or work. */
  safe: string;
}

/**
 * Creates the new values of rotations and ends the validity of the old ones. There is one implementation for each kind of
 * credential. The steps of rotations know credentials only through this interface: they write places, refresh consumers, wait
 * and roll back in the same way for each issuer.
 *
 * Each operation may run again after a crash at any point of it, so it stores its intent in the record before it changes
 * anything. The ID of the credential that is replaced is `oldKeyId`, and that of the new one `newKeyId`.
 */
export interface Issuer {
  readonly kind: IssuerKind;
  /** Name of the kind for users, as a heading. */
  readonly title: string;
  /** Name of one credential within a sentence, such as `client secret`. */
  readonly noun: string;
  /** Whether the old and the new credential can be valid at the same time. */
  readonly canHoldTwo: boolean;
  /** Whether a new value replaces that of an existing credential, which can't be undone. Otherwise a credential is added. */
  readonly regenerates: boolean;
  readonly permissions: readonly IssuerPermission[];

  /** Returns the subject of a request, of which only one rotation runs at a time. */
  subjectOf(request: CredentialRequest): string;
  /**
   * Plans what is replaced, for how long the new value is valid, and its places.
   *
   * @param onObstacle - Called for each reason why the rotation can't start as requested.
   * @throws {Problem} if no plan is possible; {CloudFailure}
   */
  plan(
    deps: PlanDependencies,
    request: PlanRequest<CredentialRequest>,
    now: Date,
    onObstacle: OnObstacle,
  ): Promise<PlanWithoutConsumers>;
  /** Step `makeRoom`: removes the expired credential `removeExpired` of the plan. Absent if a plan never has one. */
  makeRoom?(context: StepContext): Promise<void>;
  /** Step `create`: creates the new credential and stores its held copy. Reconciles requests whose response was lost. */
  create(context: StepContext): Promise<void>;
  /** Step `prove`: tests the new credential before any place is written. @throws {ContinueLater} until it works reliably. */
  prove(context: StepContext): Promise<void>;
  /** Returns the value of a credential that this rotation created; undefined if the value is lost. */
  readValue(context: StepContext, keyId: string): Promise<string | undefined>;
  /** Returns whether a value that a place stores is valid for the rotated subject, before it is overwritten or restored. */
  testValue(context: StepContext, value: string): Promise<TestResult>;
  /**
   * Returns what a place stores with the new value instead of its previous content, such as a connection string with another key.
   * Absent if each place stores the value itself.
   */
  valueFor?(record: RotationRecord, newValue: string, previousContent: string): string;
  /** Returns the tags of a version that stores the credential `keyId`. The first tag identifies the credential. */
  tagsOf(record: RotationRecord, keyId: string): [[string, string], ...[string, string][]];
  /** Returns the places that store, or may store, the old value now. */
  findTargets(context: StepContext): Promise<Target[]>;
  /** Returns what speaks against retiring the old credential, apart from written places, consumers and logs. */
  reasonsToKeepOld(context: StepContext): Promise<ReasonsToKeepOld>;
  /** Returns reasons from logs to keep the old credential, as sentences. Absent if no log names the credential. */
  reasonsFromLogs?(context: StepContext): Promise<string[]>;
  /**
   * Step `revoke`: ends the validity of the old credential, or does nothing if only its next rotation does. Stores
   * `revokingSince` before a change that can't be undone.
   */
  retire(context: StepContext): Promise<void>;
  /** Returns whether the old credential is still valid although its removal was started. @throws {CloudFailure} */
  isOldKept(deps: StepDependencies, record: RotationRecord): Promise<boolean>;
  /**
   * Step `removeNew` of a rollback, after places and consumers have the old value again: removes the new credential if nothing
   * uses it. No attempt to create a credential then waits for its response anymore. An issuer that regenerates keeps the new value,
   * because it can't restore the previous one.
   *
   * @param findUsers - Returns the names of consumers that may still have the new value.
   * @throws {ContinueLater} while that is not certain.
   */
  restore(context: StepContext, findUsers: () => Promise<string[]>): Promise<void>;
  /** Part of the step `cleanUp`: removes credentials of failed attempts. Absent if attempts leave none behind. */
  removeLeftovers?(context: StepContext): Promise<void>;
  /** Part of the step `cleanUp` of a completed rotation: records the places that it wrote, so that the next one may write them. */
  recordPlaces(context: StepContext): Promise<void>;
  /** Requests the updates of the inventory that follow from a step. Absent if the inventory does not list the credentials. */
  updateInventory?(inventory: InventoryUpdates, record: RotationRecord, step: StepName): Promise<void>;
  /** Returns the sentences of the plan for the steps of the issuer. */
  planTexts(record: RotationRecord): Partial<Record<StepName, string>>;
  /** Returns the sentences about finished steps of the issuer that differ from those of a client secret. */
  resultTexts?(record: RotationRecord): Partial<Record<StepName, string>>;
  /** @param code - Code of the failure for which a user must act. */
  attentionTexts(record: RotationRecord, code: string): AttentionTexts;
}
