import * as z from "zod";

/**
 * A region such as `eu-west-1`. Without dot or slash, so that it stays within a host name.
 * https://docs.aws.amazon.com/general/latest/gr/rande.html
 */
const REGION = /^[a-z]{2,4}(-[a-z0-9]+){2,4}$/;

export const isRegion = (text: string): boolean => text.length <= 32 && REGION.test(text);

/** 16 to 128 word characters: https://docs.aws.amazon.com/IAM/latest/APIReference/API_AccessKey.html */
const accessKeyId = z.string().regex(/^\w{16,128}$/, "must be 16 to 128 letters, digits or _");

export const AwsConfiguration = z
  .strictObject({
    accessKeyId: accessKeyId.describe("The id of an access key, for example of an IAM user created for this service."),
    secretAccessKey: z
      .string()
      .min(16)
      .max(128)
      .regex(/^\S+$/, "must not hold white space")
      .describe("The secret of that access key."),
    region: z
      .string()
      .refine(isRegion, "must be a region such as eu-west-1")
      .describe("The region of records that name none."),
  })
  .meta({ id: "AwsSyncConfiguration" });

export type AwsSettings = Pick<z.infer<typeof AwsConfiguration>, "region">;
export type AwsSecrets = Omit<z.infer<typeof AwsConfiguration>, "region">;
