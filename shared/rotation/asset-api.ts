import * as z from "zod";
import { consumersOptions, placesOptions } from "./api.ts";
import { ALPHABETS, leastLength } from "./generate.ts";

/** Largest value of a key vault secret in bytes: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets */
const MAX_VALUE_BYTES = 25_600;

const Generate = z
  .strictObject({
    length: z.int().min(8).max(4096).meta({ description: "Characters of the value." }),
    alphabet: z
      .string()
      .min(2)
      .max(128)
      .regex(/^[\x20-\x7e]+$/, "must be printable ASCII")
      .meta({
        description: `Characters the value is drawn from, each once; or the name of such a set: ${Object.keys(ALPHABETS).join(", ")}. A value must have 96 bits or more: alphanumeric ones 17 characters.`,
      }),
  })
  .superRefine(({ length, alphabet }, context) => {
    const least = leastLength(alphabet);
    if (least === undefined)
      context.addIssue({ code: "custom", path: ["alphabet"], message: "must name each character once" });
    else if (length < least) {
      context.addIssue({ code: "custom", path: ["length"], message: `must be at least ${least} for this alphabet` });
    }
  })
  .meta({ id: "GenerateValue" });

export const RotateAssetRequest = z
  .strictObject({
    ...placesOptions,
    targets: placesOptions.targets.meta({
      description:
        "Asset ids of the only vault secrets that get the new value, beside the one in the path; for an application's client secret alone. Left out: the one in the path, those that a person confirmed and those that an earlier rotation wrote; where there is none, the one that has held the value longest.",
    }),
    ...consumersOptions,
    newValue: z
      .string()
      .min(1)
      .refine((value) => Buffer.byteLength(value) <= MAX_VALUE_BYTES, `must have at most ${MAX_VALUE_BYTES} bytes`)
      .optional()
      .meta({
        description: "The new value; never answered or logged. Not for an application's client secret.",
        writeOnly: true,
      }),
    generate: Generate.optional().meta({
      description: "Has a value made; needs issuerAccepts. Not together with newValue.",
    }),
    issuerAccepts: z.boolean().default(false).meta({
      description:
        "Confirms that no other system must know the generated value first, because whatever checks the value accepts any.",
    }),
    expiryDays: z.int().min(1).max(730).optional().meta({
      description: "Days until the new value expires; defaultValidityDays when left out.",
    }),
    overlapDays: z.int().min(0).max(90).optional().meta({
      description:
        "For a client secret: days during which both secrets are valid, default 7. For other secrets: days during which the rotation can be cancelled after all consumers hold the new value, default 0.",
    }),
    removeExpired: z.boolean().default(false).meta({
      description: "Whether an expired client secret is removed first where the application can't have another one.",
    }),
    dryRun: z.boolean().default(false).meta({ description: "Answers the plan and does nothing." }),
  })
  .meta({ id: "RotateAssetRequest" });
export type RotateAssetRequest = z.infer<typeof RotateAssetRequest>;

export const RotateAssetParams = z.object({
  secret_id: z
    .string()
    .max(300)
    .meta({ description: "The asset id of a secret, or of an application's client secret." }),
});
