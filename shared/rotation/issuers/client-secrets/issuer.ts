import type { ClientSecretRequest } from "../../request.ts";
import type { Issuer } from "../issuer.ts";
import { createSecret, removeExpiredSecret } from "./create.ts";
import { updateInventory } from "./inventory.ts";
import { planClientSecret } from "./plan.ts";
import { readCreatedSecret, testSignIn, testValue } from "./prove.ts";
import { reconcileAttempts, removeNewSecret } from "./restore.ts";
import { findTargets, isOldSecretListed, reasonsFromSignIns, reasonsToKeepOld, retireOldSecret } from "./retire.ts";
import { tagsOf } from "./tags.ts";
import { attentionTexts, planTexts } from "./texts.ts";

/** Client secrets of Entra applications. Microsoft Entra ID creates each value and returns it once. */
export const clientSecrets: Issuer = {
  kind: "clientSecret",
  title: "Client secret of an application",
  noun: "client secret",
  canHoldTwo: true,
  regenerates: false,
  permissions: [
    {
      name: "Application.Read.All",
      purpose: "List applications and their client secrets (Microsoft Graph).",
      optional: false,
    },
    {
      name: "Application.ReadWrite.OwnedBy",
      purpose:
        "Add and remove client secrets (Microsoft Graph). The identity's service principal must be an owner of each application.",
      optional: false,
    },
    {
      name: "Policy.Read.ApplicationConfiguration",
      purpose:
        "Read the tenant's limit for the lifetime of secrets (Microsoft Graph). Without it, a shorter limit only shows when the secret is created.",
      optional: true,
    },
  ],
  subjectOf: ({ appId }: ClientSecretRequest) => appId,
  plan: planClientSecret,
  makeRoom: removeExpiredSecret,
  create: createSecret,
  prove: testSignIn,
  readValue: readCreatedSecret,
  testValue,
  tagsOf,
  findTargets,
  reasonsToKeepOld,
  reasonsFromLogs: reasonsFromSignIns,
  retire: retireOldSecret,
  isOldKept: isOldSecretListed,
  restore: removeNewSecret,
  removeLeftovers: (context) => reconcileAttempts(context, { final: true }),
  recordPlaces: ({ deps, record }) => deps.matches.recordWrittenPlaces(record),
  updateInventory,
  planTexts,
  attentionTexts,
};
