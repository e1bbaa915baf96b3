/**
 * Types of the worker protocol between the host and `@azure/functions`. Source: `types-core/index.d.ts` of
 * github.com/Azure/azure-functions-nodejs-library.
 */

export type LogLevel = "trace" | "debug" | "information" | "warning" | "error" | "critical" | "none";
export type LogCategory = "user" | "system" | "customMetric";

export interface TypedData {
  string?: string;
  json?: string;
  bytes?: Uint8Array;
  http?: HttpData;
  int?: number;
  double?: number;
}

interface Nullable<T> {
  value?: T | null;
}

export interface HttpCookie {
  name: string;
  value: string;
  domain?: Nullable<string>;
  path?: Nullable<string>;
  /** Seconds since 1970. */
  expires?: Nullable<{ seconds: number }>;
  secure?: Nullable<boolean>;
  httpOnly?: Nullable<boolean>;
  sameSite?: "none" | "lax" | "strict" | "explicitNone";
  /** Seconds. */
  maxAge?: Nullable<number>;
}

export interface HttpData {
  method?: string;
  url?: string;
  statusCode?: string;
  headers?: Record<string, string>;
  body?: TypedData | null;
  cookies?: HttpCookie[];
  nullableHeaders?: Record<string, Nullable<string>>;
  nullableQuery?: Record<string, Nullable<string>>;
  nullableParams?: Record<string, Nullable<string>>;
}

export interface ParameterBinding {
  name: string;
  data?: TypedData | null;
}

export interface TraceContext {
  traceParent: string;
  traceState?: string;
}

export interface RetryContext {
  retryCount: number;
  maxRetryCount: number;
  exception?: { message: string; source: string; stackTrace: string };
}

export interface InvocationRequest {
  invocationId: string;
  functionId: string;
  inputData: ParameterBinding[];
  triggerMetadata: Record<string, TypedData>;
  traceContext: TraceContext;
  retryContext?: RetryContext;
}

export interface InvocationResponse {
  outputData?: ParameterBinding[];
  returnValue?: TypedData | null;
}

export interface BindingInfo {
  type: string;
  direction: "in" | "out" | "inout";
  [setting: string]: unknown;
}

export interface RetryOptions {
  retryStrategy: "fixedDelay" | "exponentialBackoff";
  /** Maximum number of retries. -1 for no limit. */
  maxRetryCount: number;
  delayInterval?: { seconds: number };
  minimumInterval?: { seconds: number };
  maximumInterval?: { seconds: number };
}

export interface FunctionMetadata {
  name: string;
  functionId?: string;
  bindings: Record<string, BindingInfo>;
  retryOptions?: RetryOptions;
}

export type FunctionCallback = (...inputs: unknown[]) => unknown;

export interface CoreInvocationContext {
  invocationId: string;
  request: InvocationRequest;
  metadata: FunctionMetadata;
  state?: "preInvocationHooks" | "invocation" | "postInvocationHooks" | undefined;
  log(level: LogLevel, category: LogCategory, message: string): void;
}

interface InvocationModel {
  getArguments(): Promise<{ context: unknown; inputs: unknown[] }>;
  invokeFunction(context: unknown, inputs: unknown[], callback: FunctionCallback): Promise<unknown>;
  getResponse(context: unknown, result: unknown): Promise<InvocationResponse>;
}

export interface ProgrammingModel {
  name: string;
  version: string;
  getInvocationModel(context: CoreInvocationContext): InvocationModel | Promise<InvocationModel>;
  getCapabilities?(defaults: Record<string, string>): Record<string, string> | Promise<Record<string, string>>;
}
