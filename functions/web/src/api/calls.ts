/** Typed functions for the API's operations by name. A function throws the problem document of an error response. */
import type { FetchOptions, FetchResponse } from "openapi-fetch";
import type { Operation } from "./access.ts";
import { client } from "./client.ts";
import { OPERATIONS } from "./operations.ts";
import type { operations } from "./schema.d.ts";

/** Parameters and body of a request. */
type RequestData<O extends Operation> = Pick<FetchOptions<operations[O]>, "params" | "body">;
type ResponseBody<O extends Operation> = NonNullable<FetchResponse<operations[O], object, "application/json">["data"]>;

/** Calls an operation and returns the body of its response. @throws {Problem} */
export type Call<O extends Operation> = (data: RequestData<O>) => Promise<ResponseBody<O>>;

/** Returns the function that calls an operation, by its id in the OpenAPI document. */
export function callOf<O extends Operation>(operation: O): Call<O> {
  const { method, path } = OPERATIONS[operation];
  // `Call` types each operation. The compiler can't resolve the union of all operations, so `request` is untyped here.
  const request = client.request as (...args: unknown[]) => Promise<{ data?: ResponseBody<O>; error?: unknown }>;
  return async (requestData) => {
    const { data, error } = await request(method, path, requestData);
    if (error) throw error;
    return data as ResponseBody<O>;
  };
}
