import type { ResourceKeyRequest } from "../../request.ts";
import { KEY_KINDS } from "../../resource-keys/kinds.ts";
import type { Issuer, IssuerPermission } from "../issuer.ts";
import { createKey } from "./create.ts";
import { planResourceKey } from "./plan.ts";
import { proveKey, readKey, testValue, valueFor } from "./prove.ts";
import { deletePreviousCopies, keepNewKey } from "./restore.ts";
import { findTargets, isOldKeyKept, reasonsToKeepOld, retireOldKey } from "./retire.ts";
import { tagsOf } from "./tags.ts";
import { attentionTexts, planTexts, resultTexts } from "./texts.ts";

/** Keys of Azure resources that have two keys. A rotation regenerates the key that is not in use. */
export const resourceKeys: Issuer = {
  kind: "resourceKey",
  title: "Key of an Azure resource",
  noun: "key",
  canHoldTwo: true,
  regenerates: true,
  permissions: KEY_KINDS.filter(({ reportOnly }) => reportOnly === undefined).flatMap(({ title, actions }) =>
    actions.map(
      (name): IssuerPermission => ({
        name,
        purpose: `Find a ${title}, list its keys and regenerate one (Azure Resource Manager). Only for resources of this kind.`,
        optional: true,
      }),
    ),
  ),
  subjectOf: ({ resourceId }: ResourceKeyRequest) => resourceId.toLowerCase(),
  plan: planResourceKey,
  create: createKey,
  prove: proveKey,
  readValue: readKey,
  testValue,
  valueFor,
  tagsOf,
  findTargets,
  reasonsToKeepOld,
  retire: retireOldKey,
  isOldKept: isOldKeyKept,
  restore: keepNewKey,
  removeLeftovers: deletePreviousCopies,
  recordPlaces: ({ deps, record, now }) => deps.keyLinks.recordWrittenPlaces(record, now()),
  planTexts,
  resultTexts,
  attentionTexts,
};
