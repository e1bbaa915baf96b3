import * as z from "zod";
import { assetId } from "../inventory/asset.ts";
import { pageOf } from "../platform/http/paging.ts";
import { CONFIDENCES, EVIDENCE, EVIDENCE_WORDS, type Match, VERIFIED } from "./match.ts";
import { PROOF_OUTCOMES, type Proof } from "./match-proof.ts";

/** API schemas and views of matches between vault secrets and credentials of applications. */

export const clientId = z
  .guid("must be a client id (a GUID)")
  .meta({ description: "The application's client id, which Entra calls appId." });

export const RotationMatch = z
  .object({
    vaultName: z.string(),
    secretName: z.string(),
    version: z.string().nullable().meta({
      description: "The version that was proved or confirmed; null before that, since lists of vaults name none.",
    }),
    assetId: z.string().meta({ description: "`<vault>.secret.<name>`" }),
    confidence: z.enum(CONFIDENCES).meta({
      description:
        "`certain`: the secret names the credential itself, was confirmed, or signed in. A rotation writes to no others. Before it does, the value there must sign in or be confirmed, and the place must be confirmed, named in the request, or written by an earlier rotation; see `notUpdated` of a rotation. `likely`, `possible`: never written.",
    }),
    evidence: z.array(z.enum(EVIDENCE)).meta({
      description: `The strongest first. ${EVIDENCE.map((kind) => `\`${kind}\`: ${EVIDENCE_WORDS[kind]}`).join("; ")}.`,
    }),
    keyId: z
      .string()
      .nullable()
      .meta({ description: "The credential it is thought to hold; null when nothing tells which." }),
    enabled: z.boolean().meta({ description: "Whether the secret is enabled. A rotation writes to no disabled one." }),
    verified: z.enum(VERIFIED).meta({
      description: "What the value has proved. hint: it starts with the credential's hint. signIn: it signed in.",
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
  .meta({ description: "The asset id of a vault's secret.", example: "kv-payments.secret.payments-client-secret" });

export const MatchToVerify = z.strictObject({ assetId: matchedSecret }).meta({ id: "RotationMatchToVerify" });

export const MatchToConfirm = z
  .strictObject({
    assetId: matchedSecret,
    keyId: z
      .guid("must be a key id (a GUID)")
      .optional()
      .meta({ description: "The credential it holds. May be left out when the application has only one secret." }),
    confirmed: z.boolean().default(true).meta({ description: "false takes an earlier word back." }),
  })
  .meta({ id: "RotationMatchToConfirm" });

export const VerifiedMatch = z
  .object({
    result: z.enum(PROOF_OUTCOMES).meta({
      description:
        "`accepted`: its value signed in. `expired`: the secrets of the application have ended, so that a sign-in proves nothing any more. `refused`: none that works. `otherHint`: it begins otherwise, nothing was tried. `impossible`, `unclear`: a sign-in could prove nothing. `unreadable`: the vault did not give the value.",
    }),
    message: z.string().meta({ description: "What the result means and what to do." }),
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
