/**
 * The permissions of each role and the views of the page, to compare them with what the page shows. The permissions come from
 * docs/roles-matrix.md, which test/http/roles.test.ts compares with the API. An operation is an endpoint's `operationId`.
 */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { tableUnder } from "../support/markdown-table.ts";

const PAGE_SOURCE = "functions/web/src";
const ROLES = ["user", "auditor", "operator", "admin"] as const;
type Role = (typeof ROLES)[number];

export interface Permissions {
  roleAllows(role: Role, operation: string): boolean;
  needsLicence(operation: string): boolean;
  /** Returns the request of an operation, with ids that don't exist. */
  callTo(operation: string): { method: string; path: string };
  /** The views in the navigation, with the operation each needs. */
  views: { path: string; title: string; needs: string }[];
  /** All views, including those without a navigation entry. Their paths can have parameters such as `:assetId`. */
  routes: { path: string; needs: string }[];
  /**
   * Returns the API calls in the page's source code that no permission check precedes, for example `access/users.tsx:
   * listUsers`.
   */
  uncheckedCalls(): string[];
}

/** @param document - The OpenAPI document, which names the operation of each method and path. */
export function readPermissions(document: {
  paths: Record<string, Record<string, { operationId?: string }>>;
}): Permissions {
  const rows = new Map(
    tableUnder("docs/roles-matrix.md", "## Endpoints").map((row) => [row.endpoint!.replaceAll("`", ""), row]),
  );
  const described = Object.entries(document.paths).flatMap(([route, methods]) =>
    Object.entries(methods).map(
      ([method, { operationId }]) => [operationId ?? "", `${method.toUpperCase()} ${route}`] as const,
    ),
  );
  const routeOf = new Map<string, string>(described);
  const nameOf = new Map<string, string>(described.map(([name, route]) => [route, name]));
  const routes = [...readFileSync(`${PAGE_SOURCE}/views/views.ts`, "utf8").matchAll(VIEW)].map(
    ([, path, title, needs]) => ({
      path: path!,
      title,
      needs: needs!,
    }),
  );
  const rowOf = (operation: string) => {
    const row = rows.get(routeOf.get(operation) ?? "");
    if (!row) throw new Error(`docs/roles-matrix.md has no operation ${operation}.`);
    return row;
  };
  const roleAllows = (role: Role, operation: string) => rowOf(operation)[role] === "yes";
  const needsLicence = (operation: string) => rowOf(operation)["without license"] !== "yes";
  const isGet = (operation: string) => routeOf.get(operation)!.startsWith("GET ");

  /**
   * Returns whether a check of the permission for `guard` also protects a call of `operation`. Every role that can call `guard`
   * must be able to call `operation`, and if `operation` needs a license, so must `guard`.
   */
  function implies(guard: string, operation: string): boolean {
    const isLicensed = !needsLicence(operation) || needsLicence(guard);
    return isLicensed && ROLES.every((role) => !roleAllows(role, guard) || roleAllows(role, operation));
  }

  function uncheckedCalls(): string[] {
    const unchecked: string[] = [];
    for (const file of globSync(`${PAGE_SOURCE}/**/*.{ts,tsx}`)) {
      const name = path.relative(PAGE_SOURCE, file).replaceAll(path.sep, "/");
      if (UNRESTRICTED.some((prefix) => name.startsWith(prefix))) continue;
      const text = readFileSync(file, "utf8");
      const folder = globSync(`${path.dirname(file)}/*.tsx`).map((one) => readFileSync(one, "utf8"));
      // The patterns below don't find calls by `callOf`.
      if (/\bcallOf\(/.test(text)) unchecked.push(`${name}: callOf, which only Operate uses`);
      for (const call of callsIn(text)) {
        const operation = nameOf.get(call) ?? call;
        // A component can read data that another component of the same view has checked.
        const guards = guardsIn(isGet(operation) ? folder.join("\n") : text);
        const isForEveryRole = isGet(operation) && !needsLicence(operation) && roleAllows("user", operation);
        if (!isForEveryRole && !guards.some((guard) => implies(guard, operation)))
          unchecked.push(`${name}: ${operation}`);
      }
    }
    return unchecked;
  }

  return {
    roleAllows,
    needsLicence,
    callTo(operation) {
      const [method, route] = routeOf.get(operation)!.split(" ");
      return { method: method!, path: route!.replaceAll(/\{\w+\}/g, "nothing") };
    },
    views: routes.flatMap(({ path, title, needs }) => (title === undefined ? [] : [{ path, title, needs }])),
    routes,
    uncheckedCalls,
  };
}

/** Matches an entry of views.ts: `path: "/sync", title: "Sync", needs: "listSyncRecords"`. */
const VIEW = /path: "([^"]+)",\s*(?:title: "([^"]+)",\s*)?needs: "(\w+)"/g;

/** Files and folders whose calls are allowed for every role, or that check the permission themselves. */
const UNRESTRICTED = ["parts/operate.tsx", "api/", "shell/"];

/** Returns the operations that the code checks, by `may("…")` or by the `operation` of a component or call. */
const guardsIn = (text: string): string[] =>
  [...text.matchAll(/(?:\bmay\(|\boperation=|\boperation: )"(\w+)"/g)].map(([, operation]) => operation!);

/** Returns the API calls in the code, by a hook or by the client, each as `POST /alerts/rules`. */
const callsIn = (text: string): string[] =>
  [/\bapi\.use\w+\(\s*"(\w+)",\s*"([^"]+)"/g, /\bclient\.([A-Z]+)\(\s*"([^"]+)"/g].flatMap((call) =>
    [...text.matchAll(call)].map(([, method, route]) => `${method!.toUpperCase()} ${route}`),
  );
