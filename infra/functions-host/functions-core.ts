import Module from "node:module";
import type { Log } from "./log.ts";
import type {
  CoreInvocationContext,
  FunctionCallback,
  FunctionMetadata,
  InvocationRequest,
  InvocationResponse,
  LogCategory,
  LogLevel,
  ProgrammingModel,
} from "./worker-protocol.ts";

// Implements `@azure/functions-core`: the module through which an app's `@azure/functions` library registers functions and
// hooks. On the platform the Node worker provides it.

/** Version of the Node worker that this module simulates. The library checks only that the worker is new enough. */
const WORKER_VERSION = "3.13.0";
const HOST_VERSION = "4.1048.0";

type HookName = "appStart" | "appTerminate" | "preInvocation" | "postInvocation" | "log";
type Hook = (context: object) => unknown;

interface RegisteredFunction {
  metadata: FunctionMetadata;
  callback: FunctionCallback;
}

/** The worker's view of an app: its registered functions and hooks, and how to call them. */
export interface Core {
  functions: Map<string, RegisteredFunction>;
  /** Runs the appStart hooks. Call it after the entry points are loaded. Registering a function later is an error. */
  finishStart(appFolder: string): Promise<void>;
  /**
   * Runs an invocation with its hooks, in the worker's order (`InvocationHandler.ts` of azure-functions-nodejs-worker).
   * @throws the error of the function
   */
  invoke(request: InvocationRequest): Promise<InvocationResponse>;
  /** Runs the appTerminate hooks. */
  terminate(): Promise<void>;
}

/**
 * Provides `@azure/functions-core` to the app as the worker does: it intercepts `require` of this one name. The app's own
 * `@azure/functions` converts inputs and results. A process can run only one app, because that library stores the first core
 * module that it gets.
 */
export function installCore(log: Log): Core {
  const functions = new Map<string, RegisteredFunction>();
  const hooks: Record<HookName, Hook[]> = {
    appStart: [],
    appTerminate: [],
    preInvocation: [],
    postInvocation: [],
    log: [],
  };
  /** Shared by all hooks of the app. */
  const appHookData = {};
  /** `hookData` of the appStart and appTerminate hooks. Each invocation has a `hookData` of its own. */
  const appLevelHookData = {};
  let model: ProgrammingModel | undefined;
  let started = false;

  const hookList = (name: string): Hook[] => {
    if (!Object.hasOwn(hooks, name)) throw systemError(new RangeError(`Unrecognized hook "${name}"`));
    return hooks[name as HookName];
  };
  const runHooks = async (name: HookName, context: object) => {
    for (const hook of hooks[name]) await hook(context);
  };

  const writeLog: WriteLog = (source, level, category, message, invocation) => {
    const entry = { level, message };
    const context = createHookContext(entry, {
      category,
      hookData: invocation?.hookData ?? {},
      appHookData,
      invocationContext: invocation?.context,
    });
    for (const hook of hooks.log) hook(context);
    // Hooks can change the entries that the app wrote, but not those of the library or the host.
    const { level: finalLevel, message: text } = category === "user" ? entry : { level, message };
    log(finalLevel, category === "user" ? `${source}.User` : source, text);
  };

  const api = {
    version: WORKER_VERSION,
    hostVersion: HOST_VERSION,
    Disposable: CoreDisposable,
    setProgrammingModel: (next: ProgrammingModel) => {
      model = next;
    },
    getProgrammingModel: () => model,
    registerFunction: (metadata: FunctionMetadata, callback: FunctionCallback) => {
      if (started) throw systemError(new Error("A function can only be registered during app startup."));
      const id = metadata.functionId ?? metadata.name;
      if (functions.has(id)) throw systemError(new Error(`A function with id "${id}" has already been registered.`));
      functions.set(id, { metadata, callback });
      return new CoreDisposable(() => {
        if (started) throw systemError(new Error("A function can only be disposed during app startup."));
        functions.delete(id);
      });
    },
    registerHook: (name: string, hook: Hook) => {
      const list = hookList(name);
      list.push(hook);
      return new CoreDisposable(() => {
        const index = list.indexOf(hook);
        if (index !== -1) list.splice(index, 1);
      });
    },
    log: (level: LogLevel, category: LogCategory, message: string) => writeLog("Host.Worker", level, category, message),
  };

  Module.prototype.require = new Proxy(Module.prototype.require, {
    apply: (target, self, args) => (args[0] === "@azure/functions-core" ? api : Reflect.apply(target, self, args)),
  });

  return {
    functions,
    async finishStart(functionAppDirectory) {
      await runHooks(
        "appStart",
        createHookContext({ functionAppDirectory }, { hookData: appLevelHookData, appHookData }),
      );
      const capabilities = (await model?.getCapabilities?.({})) ?? {};
      if (capabilities.HttpUri !== undefined) {
        throw new Error("enableHttpStream is not supported by the local host; leave it off");
      }
      started = true;
    },

    async invoke(request) {
      const registered = functions.get(request.functionId);
      if (registered === undefined || model === undefined) {
        throw new Error(`Function code for '${request.functionId}' is not loaded and cannot be invoked.`);
      }
      return await runInvocation(request, registered, model, { runHooks, writeLog, appHookData });
    },

    terminate: () => runHooks("appTerminate", createHookContext({}, { hookData: appLevelHookData, appHookData })),
  };
}

/** The parts of the core that an invocation uses. */
interface InvocationParts {
  runHooks(name: HookName, context: object): Promise<void>;
  writeLog: WriteLog;
  /** Shared by all hooks of the app. */
  appHookData: object;
}

/** Writes a log entry after the log hooks of the app have seen it. `invocation` is missing for entries outside of invocations. */
type WriteLog = (
  source: string,
  level: LogLevel,
  category: LogCategory,
  message: string,
  invocation?: { hookData: object; context: unknown },
) => void;

/**
 * Runs a registered function between its preInvocation and postInvocation hooks.
 * @throws the error of the function
 */
async function runInvocation(
  request: InvocationRequest,
  registered: RegisteredFunction,
  model: ProgrammingModel,
  { runHooks, writeLog, appHookData }: InvocationParts,
): Promise<InvocationResponse> {
  const hookData = {};
  let invocationContext: unknown;
  const core: CoreInvocationContext = {
    invocationId: request.invocationId,
    request,
    metadata: registered.metadata,
    log: (level, category, message) =>
      writeLog(`Function.${registered.metadata.name}`, level, category, message, {
        hookData,
        context: invocationContext,
      }),
  };
  const invocation = await model.getInvocationModel(core);
  const { context, inputs } = await invocation.getArguments();
  invocationContext = context;
  const fixed = { hookData, appHookData, invocationContext: context };

  const preContext = createHookContext({ inputs, functionCallback: registered.callback }, fixed);
  core.state = "preInvocationHooks";
  try {
    await runHooks("preInvocation", preContext);
  } finally {
    core.state = undefined;
  }

  const postContext = createHookContext(
    { inputs: preContext.inputs, result: null as unknown, error: null as unknown },
    fixed,
  );
  core.state = "invocation";
  try {
    postContext.result = await invocation.invokeFunction(context, preContext.inputs, preContext.functionCallback);
  } catch (error) {
    postContext.error = error;
  } finally {
    core.state = undefined;
  }

  core.state = "postInvocationHooks";
  try {
    await runHooks("postInvocation", postContext);
  } finally {
    core.state = undefined;
  }
  if (postContext.error !== null && postContext.error !== undefined) throw postContext.error;
  return invocation.getResponse(context, postContext.result);
}

class CoreDisposable {
  readonly #callOnDispose: () => unknown;

  constructor(callOnDispose: () => unknown) {
    this.#callOnDispose = callOnDispose;
  }

  static from(...disposables: { dispose(): unknown }[]): CoreDisposable {
    return new CoreDisposable(() => {
      for (const each of disposables) each.dispose();
    });
  }

  dispose(): unknown {
    return this.#callOnDispose();
  }
}

/**
 * Creates a hook's context. Hooks can change the `writable` members. Assigning to a `fixed` member throws, as in the worker.
 */
function createHookContext<T extends object>(writable: T, fixed: Record<string, unknown>): T {
  for (const [name, value] of Object.entries(fixed)) {
    Object.defineProperty(writable, name, {
      enumerable: true,
      get: () => value,
      set: () => {
        throw systemError(new TypeError(`Cannot assign to read only property '${name}'`));
      },
    });
  }
  return writable;
}

/** Adds the worker's mark for errors that the worker raised, not the app. */
function systemError<E extends Error>(error: E): E {
  return Object.assign(error, { isAzureFunctionsSystemError: true });
}
