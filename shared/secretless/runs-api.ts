import * as z from "zod";
import {
  CONNECTION_STATES,
  CREDENTIAL_STATES,
  isOver,
  PROOFS,
  RUN_STATUSES,
  RUN_STEPS,
  type RunRecord,
} from "../rotation/secretless-run.ts";
import { unconfirmedOf } from "./run-steps.ts";
import type { RunDraft } from "./runs.ts";

// The requests and responses of runs that replace a client secret.

const guid = z.guid().transform((id) => id.toLowerCase());
const EXAMPLE_CONSUMER = "devops:/acme/7a7d1c0c-6f2c-4ab8-a3a0-6e6b3c6d9f10/variablegroups/7";
/** https://learn.microsoft.com/graph/api/resources/federatedidentitycredential: at most 600 characters. */
const claim = z.string().min(1).max(600);

export const ReplaceSecretRequest = z
  .strictObject({
    keyId: guid.meta({ description: "Key ID of the client secret." }),
    replacements: z
      .array(
        z.strictObject({
          consumer: z.string().min(1).max(2048).meta({ description: "ID of the consumer, as in the report." }),
          issuer: claim.optional().meta({ description: "Claim iss of its tokens. Default: that of the report." }),
          subject: claim.optional().meta({ description: "Claim sub of its tokens. Default: that of the report." }),
          audience: claim.optional().meta({ description: "Claim aud of its tokens. Default: that of the report." }),
        }),
      )
      .max(50)
      .default([])
      .meta({
        description:
          "Values for the placeholders of the report, exactly as the tokens of the workload have them. Other parts must equal the report.",
      }),
    idleDays: z
      .int()
      .min(1)
      .max(365)
      .default(35)
      .meta({ description: "Days without a sign-in with the secret, after the switch, before it is removed." }),
    plan: z
      .string()
      .regex(/^[0-9a-f]{64}$/, "must be the plan of a dry run")
      .optional()
      .meta({ description: "The `plan` of a dry run. The run starts only if the plan is still the same (409)." }),
    dryRun: z.boolean().default(false).meta({ description: "Returns 200 with the plan, without any change." }),
  })
  .meta({ id: "ReplaceSecretRequest" });

export const ProofRequest = z
  .strictObject({
    assertion: z.string().min(1).max(8192).meta({
      description: "A token that the platform of the workload issued to it. It is neither stored nor logged.",
      writeOnly: true,
    }),
  })
  .meta({ id: "SecretlessProofRequest" });

export const ConfirmRequest = z
  .strictObject({
    blindSpots: z
      .array(z.string().min(1).max(2100))
      .min(1)
      .max(200)
      .meta({
        description: "Codes of all blind spots of the run, which you accept.",
        example: ["userSignIns", "logGaps", "handMadeCopies"],
      }),
  })
  .meta({ id: "SecretlessConfirmRequest" });

export const RollbackRequest = z
  .strictObject({
    force: z.boolean().default(false).meta({
      description:
        "Rolls back although workloads may have switched. A workload that signs in with the federated credential can no longer sign in then.",
    }),
  })
  .meta({ id: "SecretlessRollbackRequest" });

export const RunParams = z.object({ run_id: z.string().meta({ description: "The runId of the run." }) });
export const RunsQuery = z.strictObject({
  appId: guid.optional().meta({ description: "Only runs of this application, by client ID." }),
});

const Failure = z.object({
  code: z.string().meta({ description: "Code of the failure.", example: "planChanged" }),
  message: z.string().meta({ description: "The reason.", example: "The report has changed." }),
  remedy: z.string().meta({ description: "What to do.", example: "Read the report again." }),
});
const BlindSpot = z.object({
  code: z.string().meta({ description: "Code, to confirm it.", example: "userSignIns" }),
  message: z.string().meta({ description: "What is not known.", example: "Sign-ins of users are in other logs." }),
});
const instant = z.iso.datetime().nullable();

export const RunView = z
  .object({
    runId: z.string().nullable().meta({ description: "ID of the run. Null for a dry run." }),
    appId: z.string().meta({ description: "Client ID of the application." }),
    appName: z.string().meta({ description: "Display name of the application.", example: "Shop" }),
    keyId: z.string().meta({ description: "Key ID of the client secret." }),
    status: z.enum(["planned", ...RUN_STATUSES]).meta({
      description:
        "`planned`: only of a dry run. `running`, `rollingBack`: its steps continue in the background. `needsAttention`: a person must act; see `failure`. `failed`, `rolledBack`: all changes were undone.",
    }),
    plan: z.string().meta({
      description: "Fingerprint of the plan. Send it to start exactly this plan.",
      example: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    }),
    idleDays: z.int().meta({ description: "Days without a sign-in before the secret is removed." }),
    credentials: z
      .array(
        z.object({
          name: z.string().nullable().meta({ description: "Name. Null if Azure DevOps chooses it.", example: null }),
          issuer: z
            .string()
            .nullable()
            .meta({ description: "Issuer. Null until the connection shows it.", example: null }),
          subject: z
            .string()
            .nullable()
            .meta({ description: "Subject. Null until the connection shows it.", example: null }),
          audience: z.string().meta({ description: "Audience of the tokens.", example: "api://AzureADTokenExchange" }),
          consumers: z
            .array(z.string())
            .meta({ description: "IDs of the consumers that use it.", example: [EXAMPLE_CONSUMER] }),
          state: z.enum(CREDENTIAL_STATES).meta({
            description:
              "`asked`: requested, and the response was lost. `byDevops`: Azure DevOps adds it. `kept`: a converted connection uses it, so the rollback leaves it.",
          }),
          verified: z.boolean().meta({ description: "Whether Azure shows that the workload presents these values." }),
          proof: z.enum(PROOFS).nullable().meta({
            description:
              "`exchanged`: a token of the workload was accepted. `connection`: Azure DevOps signed in. `notProvable`: the service has no token of the workload.",
          }),
          provenAt: instant.meta({ description: "Time of the proof." }),
        }),
      )
      .meta({ description: "Federated credentials that replace the secret." }),
    connections: z
      .array(
        z.object({
          id: z.string().meta({
            description: "ID of the consumer.",
            example:
              "devops:/acme/7a7d1c0c-6f2c-4ab8-a3a0-6e6b3c6d9f10/serviceconnections/3f1c0f5e-8d0b-4b53-9d4b-0f1f7f6b2a10",
          }),
          name: z.string(),
          automatic: z.boolean().meta({ description: "Whether the run converts it. Otherwise a person does." }),
          state: z.enum(CONNECTION_STATES).meta({ description: "`waiting`: a person must complete the conversion." }),
        }),
      )
      .meta({ description: "Service connections of Azure DevOps." }),
    byPerson: z
      .array(
        z.object({
          consumer: z.string().meta({ description: "ID of the consumer.", example: EXAMPLE_CONSUMER }),
          text: z.string().meta({ description: "What to do.", example: "Assign the identity to the consumer." }),
        }),
      )
      .meta({ description: "Only of a dry run: what a person changes in the consumers after the step `prove`." }),
    steps: z
      .array(
        z.object({
          name: z.enum(RUN_STEPS).meta({ description: "Name of the step.", example: "watch" }),
          status: z
            .enum(["waiting", "running", "done", "failed", "skipped"])
            .meta({ description: "Status of the step." }),
          startedAt: instant.meta({ description: "Time of the first start." }),
          finishedAt: instant.meta({ description: "Time of the end." }),
          failure: Failure.nullable().meta({ description: "The last failure." }),
        }),
      )
      .meta({ description: "Steps in their order." }),
    watch: z
      .object({
        since: z.iso
          .datetime()
          .meta({ description: "Time of the switch. A later sign-in with the secret restarts the wait." }),
        checkedAt: z.iso.datetime().meta({ description: "Time of the last check of the logs." }),
        lastUsedAt: instant.meta({ description: "Last logged sign-in with the secret." }),
        idleDays: z.int().meta({ description: "Whole days without a sign-in since then." }),
        logged: z.boolean().meta({ description: "Whether complete logs show it. Otherwise only the time passed." }),
        blindSpots: z.array(BlindSpot).meta({ description: "Uses of the secret that no log shows." }),
        unconfirmed: z.array(z.string()).meta({
          example: ["userSignIns"],
          description: "Codes of the blind spots that no person has accepted. They keep the secret from being removed.",
        }),
      })
      .nullable()
      .meta({ description: "Use of the secret since the switch. Null before it." }),
    confirmedBy: z.string().nullable().meta({ description: "User who accepted the blind spots.", example: "admin" }),
    failure: Failure.nullable().meta({ description: "Why the run failed or needs attention." }),
    notes: z
      .array(z.string())
      .meta({ description: "Further facts.", example: ["The client secret was removed by someone else."] }),
    requestedBy: z.string().meta({ description: "User who started the run.", example: "admin" }),
    createdAt: z.iso.datetime(),
    endedAt: instant.meta({ description: "Time of the end." }),
  })
  .meta({ id: "SecretlessRun" });

export const RunList = z.object({ items: z.array(RunView) }).meta({ id: "SecretlessRunList" });

/** Returns the view of a run. */
export const runView = (run: RunRecord): z.input<typeof RunView> => viewOf(run, run.runId, []);
/** Returns the view of a plan, whose ID is new in each dry run. */
export const draftView = (draft: RunDraft): z.input<typeof RunView> => ({
  ...viewOf({ ...draft, writeId: "" }, null, draft.byPerson),
  status: "planned",
  credentials: viewOf({ ...draft, writeId: "" }, null, []).credentials.map((one) => ({ ...one, name: null })),
});

function viewOf(run: RunRecord, runId: string | null, byPerson: RunDraft["byPerson"]): z.input<typeof RunView> {
  const { watch } = run;
  return {
    runId,
    appId: run.appId,
    appName: run.appName,
    keyId: run.keyId,
    status: run.status,
    plan: run.plan,
    idleDays: run.idleDays,
    credentials: run.credentials.map((one) => ({
      name: one.name || null,
      issuer: one.issuer || null,
      subject: one.subject || null,
      audience: one.audience,
      consumers: one.consumers,
      state: one.state,
      verified: one.isVerified,
      proof: one.proof ?? null,
      provenAt: one.provenAt ?? null,
    })),
    connections: run.connections.map(({ consumer, name, automatic, state }) => ({
      id: consumer,
      name,
      automatic,
      state,
    })),
    byPerson,
    steps: run.steps.map(({ name, status, startedAt, finishedAt, failure }) => ({
      name,
      status,
      startedAt: startedAt ?? null,
      finishedAt: finishedAt ?? null,
      failure: failure ?? null,
    })),
    watch: watch
      ? {
          since: watch.since,
          checkedAt: watch.checkedAt,
          lastUsedAt: watch.lastUsedAt ?? null,
          idleDays: watch.idleDays,
          logged: watch.isLogged,
          blindSpots: watch.blindSpots,
          unconfirmed: isOver(run.status) ? [] : unconfirmedOf(run).map(({ code }) => code),
        }
      : null,
    confirmedBy: run.confirmed?.by ?? null,
    failure: run.failure ?? null,
    notes: run.notes,
    requestedBy: run.requestedBy,
    createdAt: run.createdAt,
    endedAt: run.endedAt ?? null,
  };
}
