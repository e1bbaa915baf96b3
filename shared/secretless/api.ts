import * as z from "zod";
import { CredentialUsageView, usageView } from "../applications/api.ts";
import { CONSUMER_KINDS } from "../dependencies/edge.ts";
import {
  BLOCKERS,
  IDENTITY_MODES,
  MAX_FEDERATED_CREDENTIALS,
  REPLACEMENTS,
  type SecretlessReport,
  type SecretReport,
  VERDICTS,
} from "./report.ts";

/** API schema of the report on client secrets, and the view of its records. */

const Blocker = z.object({
  code: z.enum(BLOCKERS).meta({
    description:
      "`foreignApplication`: the application belongs to another tenant. `federatedCredentialLimit`: no room for another federated credential. `outsideAzure`: readers of a copy in another cloud are unknown. `unknownKind`: the service does not know how the consumer signs in.",
  }),
  message: z.string().meta({
    description: "The reason, and what to do.",
    example: "The application belongs to another tenant. Only that tenant can add federated credentials to it.",
  }),
});

const Unknown = z.object({
  code: z.string().meta({
    description: "Kind of the source that was not searched, or of the use that no source shows.",
    example: "handMadeCopies",
  }),
  message: z.string().meta({
    description: "Unknown facts, as a sentence.",
    example: "Copies that people made by hand, and programs outside the searched systems, are unknown.",
  }),
  remedy: z.string().meta({
    description: "How to find it out.",
    example: "Watch the sign-ins with the secret before you delete it.",
  }),
});

const Step = z.object({
  text: z
    .string()
    .meta({ description: "What to do, in sentences.", example: "Let the application trust the identity." }),
  command: z.string().nullable().meta({
    description: "Command of the Azure CLI for a POSIX shell. Replace placeholders in <…>. Null if there is none.",
    example: "az identity show --ids '<resource ID of the managed identity>' --query principalId --output tsv",
  }),
  consumer: z.string().nullable().meta({
    description: "ID of the consumer that the step changes. Null for the secret.",
    example:
      "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-shop/providers/Microsoft.Web/sites/shop",
  }),
});

const FederatedCredential = z.object({
  issuer: z.string().meta({
    description: "Issuer, or a placeholder in <…> if the service can't know it.",
    example: "https://login.microsoftonline.com/3f1c0f5e-8d0b-4b53-9d4b-0f1f7f6b2a10/v2.0",
  }),
  subject: z.string().meta({
    description: "Subject. Placeholders in <…> stand for unknown parts.",
    example: "<principal ID of the managed identity>",
  }),
  audience: z.string().meta({ description: "Audience of the cloud.", example: "api://AzureADTokenExchange" }),
  usualSubject: z.string().nullable().meta({
    description: "Subject in the platform's usual format, to compare with that of a token. Null if parts are unknown.",
    example: "repo:acme/shop:environment:production",
  }),
  exists: z
    .boolean()
    .meta({ description: "Whether the application already has one with this issuer and usual subject." }),
});

const Consumer = z
  .object({
    id: z.string().meta({
      description: "ID of the resource, as in dependencies.",
      example:
        "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-shop/providers/Microsoft.Web/sites/shop",
    }),
    kind: z.enum(CONSUMER_KINDS).meta({ description: "Kind of the resource." }),
    name: z.string(),
    evidence: z.array(z.string()).meta({
      description: "Names of settings, variables, fields or logged operations.",
      example: ["appsettings/CLIENT_SECRET"],
    }),
    strength: z
      .enum(["references", "entitled", "observed"])
      .meta({ description: "How it is known: by configuration, by access only, or by a log." }),
    places: z.array(z.string()).meta({
      description: "Asset IDs of the vault secrets through which it gets the secret.",
      example: ["kv-shop.secret.client-secret"],
    }),
    copy: z.boolean().meta({ description: "Whether it stores a copy of the value." }),
    certain: z.boolean().meta({
      description: "False if it uses a client secret of the application, and which one is unknown.",
    }),
    replacement: z.enum(REPLACEMENTS).meta({
      description:
        "`managedIdentity`: an identity of Azure. `federatedCredential`: a token of another platform that the application trusts. `none`: nothing that the service knows. `unknown`: the kind of the consumer does not decide.",
    }),
    mode: z.enum(IDENTITY_MODES).nullable().meta({
      description:
        "For a managed identity: `trusted` as federated credential of the application, or `instead` of the application.",
    }),
    federatedCredential: FederatedCredential.nullable().meta({
      description: "Federated credential that the application needs. Null if none is needed.",
    }),
    questions: z
      .array(
        z.object({
          name: z.string().meta({ description: "Unknown fact.", example: "principal ID of the managed identity" }),
          how: z.string().meta({
            description: "How to find it out.",
            example: "The plan creates the identity and reads its principal ID.",
          }),
        }),
      )
      .meta({ description: "Facts that the plan needs and the service can't know." }),
    blockers: z.array(Blocker).meta({ description: "Reasons that keep the consumer from working without the secret." }),
  })
  .meta({ id: "SecretlessConsumer" });

const Secret = z
  .object({
    keyId: z.string(),
    assetId: z.string().meta({ description: "ID of the client secret in the inventory." }),
    displayName: z.string().nullable(),
    expiresOn: z.iso.datetime().nullable(),
    verdict: z.enum(VERDICTS).meta({
      description:
        "Whether all known consumers can work without the secret (`possible`), some (`partly`) or none (`blocked`). `unknown`: no consumer is known, or their kinds do not decide. Consumers that the service does not know are in no verdict: see the member `unknown` of the secret and of the report.",
    }),
    reason: z.string().meta({
      description: "Reason of the verdict.",
      example:
        "Each known consumer (1) can sign in without the secret. Others are possible in sources that were not searched.",
    }),
    usage: CredentialUsageView.meta({ description: "Use of the secret, as sign-in logs show it." }),
    places: z
      .array(
        z.object({
          assetId: z.string(),
          confidence: z.enum(["certain", "likely"]).meta({ description: "How sure the match is." }),
        }),
      )
      .meta({ description: "Vault secrets that store it, as certain or likely matches." }),
    consumers: z.array(Consumer).meta({ description: "Known consumers, by ID." }),
    blockers: z.array(Blocker).meta({ description: "Reasons that concern the secret itself." }),
    plan: z.array(Step).meta({ description: "Steps in their order. Empty if no consumer can be changed." }),
    unknown: z.array(Unknown).meta({ description: "Unknown facts about the consumers of this secret." }),
  })
  .meta({ id: "SecretlessSecret" });

export const Secretless = z
  .object({
    appId: z.string().meta({ description: "Client ID of the application." }),
    displayName: z.string(),
    federatedCredentials: z
      .object({
        readAt: z.iso
          .datetime()
          .meta({ description: "Time at which they were last read. They are read at most once a day." }),
        limit: z.int().meta({ description: "Maximum number for one application." }),
        items: z.array(
          z.object({
            name: z.string().meta({ description: "Name of the federated credential.", example: "github-production" }),
            issuer: z
              .string()
              .meta({ description: "Issuer of the tokens.", example: "https://token.actions.githubusercontent.com" }),
            subject: z
              .string()
              .meta({ description: "Subject of the tokens.", example: "repo:acme/shop:environment:production" }),
          }),
        ),
      })
      .nullable()
      .meta({ description: "Existing federated credentials. Null if they could not be read; see `unknown`." }),
    secrets: z.array(Secret).meta({ description: "Client secrets of the application." }),
    unknown: z.array(Unknown).meta({
      description: "Sources that were not searched for all secrets, and uses that no source shows. Never empty.",
    }),
  })
  .meta({ id: "Secretless" });

export const secretlessView = ({
  appId,
  displayName,
  federatedCredentials,
  secrets,
  unknown,
}: SecretlessReport): z.input<typeof Secretless> => ({
  appId,
  displayName,
  federatedCredentials: federatedCredentials
    ? {
        readAt: federatedCredentials.readAt,
        limit: MAX_FEDERATED_CREDENTIALS,
        items: federatedCredentials.items.map(({ name, issuer, subject }) => ({ name, issuer, subject })),
      }
    : null,
  secrets: secrets.map(secretView),
  unknown,
});

const secretView = (secret: SecretReport): z.input<typeof Secret> => {
  const { keyId, assetId, displayName, expiresOn, verdict, reason, usage, places, blockers, plan, unknown } = secret;
  return {
    keyId,
    assetId,
    displayName: displayName ?? null,
    expiresOn: expiresOn === undefined ? null : new Date(expiresOn * 1000).toISOString(),
    verdict,
    reason,
    usage: usageView(usage),
    places,
    consumers: secret.consumers.map(consumerView),
    blockers,
    plan: plan.map(({ text, command, consumer }) => ({ text, command: command ?? null, consumer: consumer ?? null })),
    unknown,
  };
};

function consumerView(consumer: SecretReport["consumers"][number]): z.input<typeof Consumer> {
  const { id, kind, name, evidence, strength, places, copy, isCertain, replacement } = consumer;
  const { by, mode, federatedCredential: needed, questions, blockers } = replacement;
  return {
    id,
    kind,
    name,
    evidence,
    strength,
    places,
    copy,
    certain: isCertain,
    replacement: by,
    mode: mode ?? null,
    federatedCredential: needed ? { ...needed, usualSubject: needed.usualSubject ?? null } : null,
    questions,
    blockers,
  };
}
