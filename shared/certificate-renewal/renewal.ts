import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { TABLE } from "./authority.ts";
import { KeySpec } from "./policy.ts";

/**
 * Records of renewals: runs of steps that issue or renew a certificate.
 *
 * | method | steps |
 * |---|---|
 * | `acme` | `order`, `publish`, `observe`, `validate`, `request`, `finalize`, `merge`, `cleanUp` |
 * | `vaultPolicy` | `create`, `issue`, `cleanUp` |
 * | rollback | `cancel`, `cleanUp` |
 *
 * | state | event | next state |
 * |---|---|---|
 * | `running` | its step is done | `running` with the next step; after `cleanUp`: `completed` |
 * | `running` | its step fails for good | `rollingBack` |
 * | `running` | its step waits for too long | `rollingBack` |
 * | `running` | `cleanUp` fails | `running`: it is repeated, for a week at most; then `completed`, with a `failure` |
 * | `rollingBack` | `cancel` finds that the vault has completed the version | `running` with `cleanUp` |
 * | `rollingBack` | a step fails | `rollingBack`: it is repeated, for a week at most; then the next step |
 * | `rollingBack` | `cleanUp` is done | `failed` |
 *
 * A step can run again after a crash at any line: it first reads what an earlier attempt did. `order` stores the URL of the order
 * before anything else uses it, and an order is finalized once by its authority.
 */
export const RENEWAL_STATUSES = ["running", "rollingBack", "completed", "failed"] as const;
export type RenewalStatus = (typeof RENEWAL_STATUSES)[number];
export const isOver = (status: RenewalStatus): boolean => status === "completed" || status === "failed";

export const STEPS = [
  "order",
  "publish",
  "observe",
  "validate",
  "request",
  "finalize",
  "merge",
  "create",
  "issue",
  "cancel",
  "cleanUp",
] as const;
export type StepName = (typeof STEPS)[number];

export const METHODS = ["acme", "vaultPolicy"] as const;
const STEPS_OF_METHOD: Record<(typeof METHODS)[number], readonly StepName[]> = {
  acme: ["order", "publish", "observe", "validate", "request", "finalize", "merge", "cleanUp"],
  vaultPolicy: ["create", "issue", "cleanUp"],
};

/** Failure of a step, with texts for users that contain no secret. */
export const RenewalFailure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type RenewalFailure = z.infer<typeof RenewalFailure>;

export const Step = z.object({
  name: z.enum(STEPS),
  status: z.enum(["waiting", "running", "done", "failed", "skipped"]),
  startedAt: z.string().optional(),
  finishedAt: z.string().optional(),
  failure: RenewalFailure.optional(),
});
export type Step = z.infer<typeof Step>;

/** A TXT record that the service wrote for an authority. */
export const Challenge = z.object({
  /** Name that the authority validates. */
  domain: z.string(),
  /** Resource ID of the zone, and the name of the record in it. */
  zoneId: z.string(),
  recordName: z.string(),
  /** The value is public: a hash of the challenge's token and the account's public key. */
  value: z.string(),
});
export type Challenge = z.infer<typeof Challenge>;

export const RenewalRecord = z.object({
  runId: z.string(),
  assetId: z.string(),
  vaultName: z.string(),
  vaultId: z.string(),
  certificate: z.string(),
  kind: z.enum(["issue", "renew"]),
  method: z.enum(METHODS),
  /** Whether the service started the renewal by its policy. */
  automatic: z.boolean(),
  authorityId: z.string().optional(),
  profile: z.string().optional(),
  preferredChain: z.string().optional(),
  /** Lower case. The first name is the subject. */
  dnsNames: z.array(z.string()),
  /** Absent: as in the policy of the certificate in the vault. */
  key: KeySpec.optional(),
  exportable: z.boolean(),
  /** Tags of the current version, which the new version gets too. */
  tags: z.record(z.string(), z.string()),

  status: z.enum(RENEWAL_STATUSES),
  steps: z.array(Step),
  failure: RenewalFailure.optional(),
  /** Version before the renewal. Absent for a new certificate. */
  previousVersion: z.string().optional(),
  orderUrl: z.string().optional(),
  /** Certificate that the order replaces (RFC 9773). */
  replaces: z.string().optional(),
  /** Records that the authority looks for. */
  challenges: z.array(Challenge),
  /** Records that an earlier attempt of `publish` may have written, and that the authority no longer looks for. */
  earlierChallenges: z.array(Challenge).optional(),
  observedSince: z.string().optional(),
  validatedSince: z.string().optional(),
  /** Operation that the vault had before. */
  earlierOperationId: z.string().optional(),
  /** Time before the operation in the vault was started, and its ID, once it is known. */
  operationAt: z.string().optional(),
  operationId: z.string().optional(),
  /** True if the operation was found, without an answer that says that this renewal started it. */
  operationFound: z.boolean().optional(),
  /** Policy of the certificate before the operation, which a rollback restores. Absent for a new certificate. */
  earlierPolicy: z.record(z.string(), z.unknown()).optional(),
  /** The new version. */
  version: z.string().optional(),
  serialNumber: z.string().optional(),
  expiresOn: z.string().optional(),

  /** Transient failures of the current step in a row. */
  failures: z.int(),
  dueAt: z.string(),
  /** ID of the worker that has the lease. */
  working: z.string().optional(),
  createdAt: z.string(),
  requestedBy: z.string(),
  requestId: z.string(),
  endedAt: z.string().optional(),
  /** Different in each write, so that a write with a lost answer is recognized. */
  writeId: z.string(),
});
export type RenewalRecord = z.infer<typeof RenewalRecord>;

/** Signed, because the row decides which order, record and operation the service changes. */
export const Renewals = entity(TABLE, RenewalRecord, { uniqueWrites: true, signed: true });
/** Pointers to renewals: the unfinished one of a certificate, and those that are due. */
export const RenewalPointers = entity(TABLE, z.object({ runId: z.string() }));
export const RENEWALS = "renewals";

/** Queue of messages that continue renewals. */
export const QUEUE = "certificate-renewals";
export const RenewalMessage = z.object({ runId: z.string().max(64) });
export type RenewalMessage = z.infer<typeof RenewalMessage>;

export const stepsOf = (method: RenewalRecord["method"]): Step[] =>
  STEPS_OF_METHOD[method].map((name) => ({ name, status: "waiting" }));

/** Returns the step to run next. */
export function nextStep({ status, steps }: Pick<RenewalRecord, "status" | "steps">): StepName {
  const open = steps.find(({ status: state }) => state === "waiting" || state === "running");
  if (open) return open.name;
  return status === "rollingBack" ? "cleanUp" : steps.at(-1)!.name;
}

const changeStep = (steps: readonly Step[], name: StepName, change: (step: Step) => Step): Step[] =>
  steps.map((step) => (step.name === name ? change(step) : step));

export function startStep(record: RenewalRecord, now: Date): Partial<RenewalRecord> {
  const begin = (step: Step): Step => ({
    ...step,
    status: "running",
    startedAt: step.startedAt ?? now.toISOString(),
  });
  return { steps: changeStep(record.steps, nextStep(record), begin) };
}

export function finishStep(record: RenewalRecord, name: StepName, now: Date): Partial<RenewalRecord> {
  const done = ({ failure: _, ...step }: Step): Step => ({ ...step, status: "done", finishedAt: now.toISOString() });
  const steps = changeStep(record.steps, name, done);
  if (name !== "cleanUp") return { steps };
  return {
    steps,
    status: record.status === "rollingBack" ? "failed" : "completed",
    endedAt: now.toISOString(),
  };
}

/** Ends a step of the rollback, or the clean-up, that failed for too long. The failure of the renewal says what is left. */
export function giveUpStep(
  record: RenewalRecord,
  name: StepName,
  failure: RenewalFailure,
  now: Date,
): Partial<RenewalRecord> {
  const { steps: _, ...end } = finishStep(record, name, now);
  const left = {
    cancel:
      "The pending operation or the earlier policy of the certificate may be left in the vault: check both there.",
    cleanUp: "Records of the renewal may be left in the DNS zones: delete them there.",
  };
  const remedy = [record.failure?.remedy, name === "cancel" ? left.cancel : left.cleanUp].filter(Boolean).join(" ");
  return {
    ...end,
    steps: changeStep(record.steps, name, (step) => ({
      ...step,
      status: "failed",
      finishedAt: now.toISOString(),
      failure,
    })),
    failure: { ...(record.failure ?? failure), remedy },
  };
}

/** Starts the rollback after a step failed for good. */
export function startRollback(
  record: RenewalRecord,
  name: StepName,
  failure: RenewalFailure,
  now: Date,
): Partial<RenewalRecord> {
  const steps = record.steps
    .filter((step) => step.name !== "cleanUp")
    .map((step): Step => {
      if (step.name === name) return { ...step, status: "failed", finishedAt: now.toISOString(), failure };
      return step.status === "waiting" ? { ...step, status: "skipped" } : step;
    });
  return {
    status: "rollingBack",
    failure,
    steps: [...steps, { name: "cancel", status: "waiting" }, { name: "cleanUp", status: "waiting" }],
  };
}

/** Ends a rollback that found that the vault has completed the new version: the answer to the merge was lost. */
export const resumeCompleted = ({ steps }: RenewalRecord): Partial<RenewalRecord> => ({
  status: "running",
  failure: undefined,
  steps: steps
    .filter(({ name }) => name !== "cancel")
    .map(({ failure: _, ...step }): Step => (step.status === "failed" ? { ...step, status: "done" } : step)),
});
