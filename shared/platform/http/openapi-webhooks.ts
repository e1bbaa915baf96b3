import type * as z from "zod";
import type { ZodOpenApiPathItemObject } from "zod-openapi";

/** A request that the service sends to a receiver, for the API description. */
export interface Webhook {
  name: string;
  operationId: string;
  tag: string;
  summary: string;
  description: string;
  mediaType: string;
  headers: z.ZodObject;
  body: z.ZodType;
  /** Descriptions of what each status of the receiver's answer means to the service. */
  responses: Readonly<Record<`${number}XX` | `${number}` | "default", string>>;
}

/** Returns the member `webhooks` of the OpenAPI document. */
export const webhooksOf = (webhooks: readonly Webhook[]): Record<string, ZodOpenApiPathItemObject> =>
  Object.fromEntries(
    webhooks.map(({ name, tag, headers, mediaType, body, responses, ...texts }) => [
      name,
      {
        post: {
          ...texts,
          tags: [tag],
          security: [],
          requestParams: { header: headers },
          requestBody: { required: true, content: { [mediaType]: { schema: body } } },
          responses: Object.fromEntries(
            Object.entries(responses).map(([status, description]) => [status, { description }]),
          ),
        },
      },
    ]),
  );
