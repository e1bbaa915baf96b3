import * as z from "zod";
import { assetId } from "../inventory/asset.ts";
import { pageOf } from "../platform/http/paging.ts";
import { CONFIDENCES, EVIDENCE, EVIDENCE_TEXTS, type Match, VERIFIED } from "./match.ts";
import { PROOF_OUTCOMES, type Proof } from "./match-verification.ts";

/** API schemas and views of matches between vault secrets and credentials of applications. */

export const clientId = z
  .guid("must be a client id (a GUID)")
  .meta({ description: "Client ID of the application (`appId` in Entra)." });

/** Path parameters of the endpoints of one application. */
export const AppParams = z.object({ app_id: clientId });

export const RotationMatch = z
  .object({
    vaultName: z.string(),
    secretName: z.string(),
    version: z.string().nullable().meta({
      description:
        "Version that was verified or confirmed. Null before that, because lists of secrets contain no versions.",
    }),
    assetId: z.string().meta({ description: "`<vault>.secret.<name>`" }),
    confidence: z.enum(CONFIDENCES).meta({
      description:
        "`certain`: the secret's metadata names the credential, a user confirmed it, or the value signed in. Metadata alone is not enough for a rotation: the value must sign in or be confirmed, and the place must be confirmed, named in the request, or written by an earlier rotation; see `notUpdated` of a rotation. If there is no such place, a rotation that a user requests writes the place that has held the value longest. `likely`, `possible`: never written.",
    }),
    evidence: z.array(z.enum(EVIDENCE)).meta({
      description: `Evidence, strongest first. ${EVIDENCE.map((kind) => `\`${kind}\`: ${EVIDENCE_TEXTS[kind]}`).join("; ")}.`,
    }),
    keyId: z.string().nullable().meta({
      description: "Key ID of the credential that the secret probably stores. Null if the evidence does not decide.",
    }),
    enabled: z
      .boolean()
      .meta({ description: "Whether the secret is enabled. Rotations do not write disabled secrets." }),
    verified: z.enum(VERIFIED).meta({
      description: "Proof by the value. hint: it starts with the credential's hint. signIn: it signed in.",
    }),
  })
  .meta({ id: "RotationMatch" });

const matches = pageOf(RotationMatch, "RotationMatchPage");
export const RotationMatchList = z
  .object({
    ...matches.shape,
    coverage: z
      .array(z.string())
      .meta({ description: "Sentences about what was not searched. Empty if the search was complete." }),
  })
  .meta({ id: "RotationMatchList" });

const matchedSecret = z
  .string()
  .min(1)
  .max(300)
  .meta({ description: "Asset ID of a vault secret.", example: "kv-payments.secret.payments-client-secret" });

export const MatchToVerify = z.strictObject({ assetId: matchedSecret }).meta({ id: "RotationMatchToVerify" });

export const MatchToConfirm = z
  .strictObject({
    assetId: matchedSecret,
    keyId: z.guid("must be a key id (a GUID)").optional().meta({
      description: "Key ID of the credential that the secret stores. Optional if the application has only one.",
    }),
    confirmed: z.boolean().default(true).meta({
      description:
        "False withdraws an earlier confirmation and states that the current version stores no credential of the application.",
    }),
  })
  .meta({ id: "RotationMatchToConfirm" });

export const VerifiedMatch = z
  .object({
    result: z.enum(PROOF_OUTCOMES).meta({
      description:
        "`accepted`: the value signed in. `expired`: the application's secrets have expired, so a sign-in proves nothing. `refused`: the value is no working secret. `otherHint`: the value does not start with the hint of any secret, so no sign-in was tried. `impossible`, `unclear`: a sign-in could prove nothing. `unreadable`: the vault did not return the value.",
    }),
    message: z.string().meta({ description: "Meaning of the result, and the next step." }),
    match: RotationMatch.nullable().meta({ description: "The match with its new state. Null without any evidence." }),
  })
  .meta({ id: "VerifiedRotationMatch" });

export const ConfirmedMatch = z
  .object({
    match: RotationMatch.nullable().meta({ description: "The match with its new state. Null without any evidence." }),
  })
  .meta({ id: "ConfirmedRotationMatch" });

export const matchView = (match: Match): z.infer<typeof RotationMatch> => ({
  vaultName: match.secret.vaultName,
  secretName: match.secret.name,
  version: match.version ?? null,
  assetId: assetId({ ...match.secret, type: "secret" }),
  confidence: match.confidence,
  evidence: match.evidence,
  keyId: match.keyId ?? null,
  enabled: match.secret.enabled,
  verified: match.verified,
});

export const verifiedMatchView = ({
  match,
  proof,
}: {
  match: Match | undefined;
  proof: Proof;
}): z.infer<typeof VerifiedMatch> => ({
  result: proof.outcome,
  message: proof.message,
  match: match ? matchView(match) : null,
});
