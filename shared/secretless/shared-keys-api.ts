import * as z from "zod";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { wholeNumber } from "../platform/http/whole-number.ts";
import { SHARED_KEY_VERDICTS, type SharedKeys } from "./shared-keys.ts";

// The report on shared keys: its query and its response.

export const SharedKeysQuery = z.strictObject({
  ...pageParameters,
  days: wholeNumber(1, 90, 30).optional().meta({ description: "Days without use." }),
});

const SharedKeysView = z
  .object({
    resourceId: z.string().meta({
      description: "ID of the resource.",
      example:
        "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-shop/providers/Microsoft.Storage/storageAccounts/stshop",
    }),
    name: z.string(),
    kind: z.string().meta({ description: "Kind of the resource.", example: "storage account" }),
    setting: z
      .string()
      .meta({ description: "Setting that turns the keys off.", example: "properties.allowSharedKeyAccess" }),
    verdict: z.enum(SHARED_KEY_VERDICTS).meta({
      description:
        "`possible`: the evidence shows no use of a key. `used`: it shows one. `off`: the keys are off. `unknown`: there is no evidence.",
    }),
    evidence: z.string().meta({
      description: "What the metrics or logs show.",
      example: "The metric Transactions shows no request with a key or a shared access signature for 30 days.",
    }),
    lastUsedAt: z.iso.datetime().nullable().meta({ description: "Last use that the evidence shows." }),
    blindSpots: z
      .array(
        z.object({
          code: z.string().meta({ description: "Code of the blind spot.", example: "olderUse" }),
          message: z
            .string()
            .meta({ description: "What the evidence does not show.", example: "Use before the period." }),
        }),
      )
      .meta({ description: "Uses that the evidence does not show." }),
    command: z.string().nullable().meta({
      description: "Command of the Azure CLI that turns the keys off. Null unless the verdict is `possible`.",
      example: "az resource update --ids '<ID>' --set properties.allowSharedKeyAccess=false",
    }),
  })
  .meta({ id: "SharedKeys" });

export const SharedKeysList = pageOf(SharedKeysView, "SharedKeysList");

export const sharedKeysView = ({ lastUsedAt, command, ...rest }: SharedKeys): z.input<typeof SharedKeysView> => ({
  ...rest,
  lastUsedAt: lastUsedAt ?? null,
  command: command ?? null,
});
