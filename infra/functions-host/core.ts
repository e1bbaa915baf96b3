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
} from "./rpc.ts";

/** The Node worker this module stands in for; the library asks only whether it is new enough. */
const WORKER_VERSION = "3.13.0";
const HOST_VERSION = "4.1048.0";

type HookName = "appStart" | "appTerminate" | "preInvocation" | "postInvocation" | "log";
type Hook = (context: object) => unknown;

interface RegisteredFunction {
  metadata: FunctionMetadata;
  callback: FunctionCallback;
}

/** The worker's side of an app: what it registered, and how it is called. */
export interface Core {
  functions: Map<string, RegisteredFunction>;
  /** Called when all entry points are loaded: runs the appStart hooks, then registering anything more is an error. */
  finishStart(appFolder: string): Promise<void>;
  /** In the worker's order of calls (`InvocationHandler.ts` of azure-functions-nodejs-worker). @throws what the function throws */
  invoke(request: InvocationRequest): Promise<InvocationResponse>;
  terminate(): Promise<void>;
}

/**
 * Offers `@azure/functions-core` to the app the way the worker does: by answering `require` of that one name. The real
 * `@azure/functions` inside the app does all the converting. One app per process, since that library keeps what it got.
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
  const appHookData = {};
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

  const write = (
    source: string,
    level: LogLevel,
    category: LogCategory,
    message: string,
    invocation?: { hookData: object; context: unknown },
  ) => {
    const entry = { level, message };
    const context = readOnly(entry, {
      category,
      hookData: invocation?.hookData ?? {},
      appHookData,
      invocationContext: invocation?.context,
    });
    for (const hook of hooks.log) hook(context);
    // Hooks may change only what the app itself logs.
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
    log: (level: LogLevel, category: LogCategory, message: string) => write("Host.Worker", level, category, message),
  };

  Module.prototype.require = new Proxy(Module.prototype.require, {
    apply: (target, self, args) => (args[0] === "@azure/functions-core" ? api : Reflect.apply(target, self, args)),
  });

  return {
    functions,
    async finishStart(functionAppDirectory) {
      await runHooks("appStart", readOnly({ functionAppDirectory }, { hookData: appLevelHookData, appHookData }));
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
      const hookData = {};
      let invocationContext: unknown;
      const core: CoreInvocationContext = {
        invocationId: request.invocationId,
        request,
        metadata: registered.metadata,
        log: (level, category, message) =>
          write(`Function.${registered.metadata.name}`, level, category, message, {
            hookData,
            context: invocationContext,
          }),
      };
      const invocation = await model.getInvocationModel(core);
      const { context, inputs } = await invocation.getArguments();
      invocationContext = context;
      const fixed = { hookData, appHookData, invocationContext: context };

      const before = readOnly({ inputs, functionCallback: registered.callback }, fixed);
      core.state = "preInvocationHooks";
      try {
        await runHooks("preInvocation", before);
      } finally {
        core.state = undefined;
      }

      const after = readOnly({ inputs: before.inputs, result: null as unknown, error: null as unknown }, fixed);
      core.state = "invocation";
      try {
        after.result = await invocation.invokeFunction(context, before.inputs, before.functionCallback);
      } catch (error) {
        after.error = error;
      } finally {
        core.state = undefined;
      }

      core.state = "postInvocationHooks";
      try {
        await runHooks("postInvocation", after);
      } finally {
        core.state = undefined;
      }
      if (after.error !== null && after.error !== undefined) throw after.error;
      return invocation.getResponse(context, after.result);
    },

    terminate: () => runHooks("appTerminate", readOnly({}, { hookData: appLevelHookData, appHookData })),
  };
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

/** A hook's context: `open` members may be changed, assigning to a `fixed` one throws as in the worker. */
function readOnly<T extends object>(open: T, fixed: Record<string, unknown>): T {
  for (const [name, value] of Object.entries(fixed)) {
    Object.defineProperty(open, name, {
      enumerable: true,
      get: () => value,
      set: () => {
        throw systemError(new TypeError(`Cannot assign to read only property '${name}'`));
      },
    });
  }
  return open;
}

function systemError<E extends Error>(error: E): E {
  return Object.assign(error, { isAzureFunctionsSystemError: true });
}
