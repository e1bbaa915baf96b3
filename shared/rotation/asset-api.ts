import * as z from "zod";
import { acceptUnread, consumersOptions, dryRun, placesOptions } from "./api.ts";
import { ALPHABETS, minLength } from "./generate.ts";

// The request that rotates a secret by its asset ID. api.ts has the options that all rotation requests share.

/** Largest value of a key vault secret in bytes: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets */
const MAX_VALUE_BYTES = 25_600;

const Generate = z
  .strictObject({
    length: z.int().min(8).max(4096).meta({ description: "Number of characters." }),
    alphabet: z
      .string()
      .min(2)
      .max(128)
      .regex(/^[\x20-\x7e]+$/, "must be printable ASCII")
      .meta({
        description: `Characters of the alphabet, each once, or the name of a predefined set: ${Object.keys(ALPHABETS).join(", ")}. A value must have at least 96 bits of entropy: 17 alphanumeric characters.`,
      }),
  })
  .superRefine(({ length, alphabet }, context) => {
    const minimum = minLength(alphabet);
    if (minimum === undefined)
      context.addIssue({ code: "custom", path: ["alphabet"], message: "must name each character once" });
    else if (length < minimum) {
      context.addIssue({ code: "custom", path: ["length"], message: `must be at least ${minimum} for this alphabet` });
    }
  })
  .meta({ id: "GenerateValue" });

export const RotateAssetRequest = z
  .strictObject({
    ...placesOptions,
    targets: placesOptions.targets.meta({
      description:
        "Asset IDs of the only vault secrets that get the new value, in addition to the one in the path. Only for client secrets of applications. Default: the one in the path, and the places that a user confirmed or an earlier rotation wrote. If there are none, the place that has held the value longest.",
    }),
    ...consumersOptions,
    newValue: z
      .string()
      .min(1)
      .refine((value) => Buffer.byteLength(value) <= MAX_VALUE_BYTES, `must have at most ${MAX_VALUE_BYTES} bytes`)
      .optional()
      .meta({
        description: "The new value. It is never returned or logged. Not allowed for client secrets of applications.",
        writeOnly: true,
      }),
    generate: Generate.optional().meta({
      description: "Generates a value. Requires `issuerAccepts`. Can't be combined with `newValue`.",
    }),
    issuerAccepts: z.boolean().default(false).meta({
      description:
        "Confirms that no other system must know the generated value first, because whatever checks the value accepts any.",
    }),
    expiryDays: z.int().min(1).max(730).optional().meta({
      description: "Days until the new value expires. Default: the setting `defaultValidityDays`.",
    }),
    overlapDays: z.int().min(0).max(90).optional().meta({
      description:
        "For a client secret: days during which both secrets are valid, default 7. For other secrets: days during which the rotation can be cancelled after all consumers hold the new value, default 0.",
    }),
    acceptUnread,
    removeExpired: z.boolean().default(false).meta({
      description: "Whether to remove an expired client secret first if the application can't have another one.",
    }),
    dryRun,
  })
  .meta({ id: "RotateAssetRequest" });
export type RotateAssetRequest = z.infer<typeof RotateAssetRequest>;

export const RotateAssetParams = z.object({
  secret_id: z
    .string()
    .max(300)
    .meta({ description: "Asset ID of a vault secret or of an application's client secret." }),
});
