import pMap from "p-map";
import { CloudFailure } from "../platform/azure/failure.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import type { DevopsTest, DevopsTestStep } from "./api.ts";
import type { DevopsClient, ListOptions } from "./client.ts";
import type { Project } from "./response-schemas.ts";

/** Maximum number of projects that one test covers. */
const MAX_TESTED_PROJECTS = 20;

/** Maximum number of projects that are tested concurrently. DevOps slows down clients with many requests. */
const MAX_CONCURRENT_PROJECTS = 2;

/** Time limit in milliseconds for all steps: the response must leave within the platform's 230 seconds. */
const TEST_TIMEOUT_MS = 120_000;

/**
 * Tests what dependency discovery reads in an organization with the service's own identity, and returns the missing
 * permissions. Runs when an administrator requests it. Changes nothing.
 */
export async function testOrganization(
  client: DevopsClient,
  { orgUrl, projectIds, now }: { orgUrl: string; projectIds: readonly string[]; now: Date },
): Promise<DevopsTest> {
  const signal = AbortSignal.timeout(TEST_TIMEOUT_MS);
  const steps: DevopsTestStep[] = [];

  /**
   * Adds the step's result. `work` returns details of a passed step, or `ok: false` with the reason. Returns false if it threw.
   */
  async function attempt(
    step: DevopsTestStep["step"],
    project: string | null,
    work: () => Promise<Partial<DevopsTestStep>>,
  ) {
    const emptyResult = { found: null, changeable: null, code: null, detail: null, remedy: null };
    try {
      steps.push({ step, project, ok: true, ...emptyResult, ...(await work()) });
      return true;
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const { code, message, remedy } = error;
      steps.push({ step, project, ok: false, ...emptyResult, code, detail: message, remedy });
      return false;
    }
  }

  let identity: DevopsTest["identity"] = null;
  const visible: Project[] = [];
  const hasSignedIn = await attempt("signIn", null, async () => {
    const { id, name = null } = await client.user(signal);
    identity = { id, name: name && toSingleLine(name) };
    return {};
  });
  if (hasSignedIn) {
    await attempt("projects", null, async () => {
      for await (const page of client.projects(signal)) visible.push(...page);
      return { found: visible.length, ...(visible.length === 0 && NO_PROJECTS) };
    });
  }
  const chosen = chosenProjects(visible, projectIds);
  const areProjectsListed = steps.every(({ ok }) => ok);
  // Without a list of projects, it is unknown which entries of `projectIds` are missing.
  if (areProjectsListed) for (const missing of chosen.missing) steps.push(missingProject(missing));
  const testedProjects = chosen.projects.slice(0, MAX_TESTED_PROJECTS);
  await pMap(
    testedProjects,
    async (project) => {
      const name = toSingleLine(project.name);
      await attempt("variableGroups", name, () =>
        describeList((options) => client.variableGroups(project.id, options)),
      );
      await attempt("serviceConnections", name, () =>
        describeList((options) => client.connections(project.id, options)),
      );
    },
    { concurrency: MAX_CONCURRENT_PROJECTS },
  );

  /**
   * Describes the number of items in a list. DevOps omits items for which the identity has no role, so an empty list is
   * ambiguous.
   */
  async function describeList(
    list: (options: ListOptions) => AsyncGenerator<unknown[]>,
  ): Promise<Partial<DevopsTestStep>> {
    const found = await count(list({ signal, unreadable: () => {} }));
    const changeable = await count(list({ signal, manageable: true, unreadable: () => {} }));
    if (found === 0) {
      return {
        found,
        changeable,
        detail: "There are no items, or the identity has no role on any of them.",
        remedy: ROLES,
      };
    }
    const detail = `The identity can change ${changeable} of ${found} items. The others are discovered but can't be rotated.`;
    return { found, changeable, ...(changeable < found && { detail, remedy: ROLES }) };
  }

  // Projects are tested concurrently, so their steps are sorted: first those without a tested project, then project by project.
  const order = testedProjects.map(({ name }) => toSingleLine(name));
  const sorted = [
    ...steps.filter(({ project }) => project === null || !order.includes(project)),
    ...order.flatMap((name) => steps.filter(({ project }) => project === name)),
  ];
  const projectsNotTested = chosen.projects.length - testedProjects.length;
  const ok = steps.every((step) => step.ok);
  return { orgUrl, ok, testedAt: now.toISOString(), identity, steps: sorted, projectsNotTested };
}

const ROLES =
  "If a permission is missing, give the service's identity the role Reader, or Administrator for rotation, in the library and service connections of the project.";

const NO_PROJECTS = {
  ok: false,
  code: "notFound",
  detail: "The identity is a user of the organization but has access to no project.",
  remedy: "Add the service's identity to a group such as Readers in each project to scan.",
};

const missingProject = (project: string): DevopsTestStep => ({
  step: "project",
  project,
  ok: false,
  found: null,
  changeable: null,
  code: "notFound",
  detail: "The project does not exist, or the identity has no access to it.",
  remedy: "Correct projectIds, or add the service's identity to a group such as Readers in that project.",
});

async function count(pages: AsyncGenerator<unknown[]>): Promise<number> {
  let total = 0;
  for await (const page of pages) total += page.length;
  return total;
}

/**
 * Returns the projects that the entries of `projectIds` name by ID or name (all if it is empty), and the entries without a
 * project.
 */
export function chosenProjects(visible: readonly Project[], projectIds: readonly string[]) {
  const names = (entry: string, { id, name }: Project) =>
    [id, name].some((text) => text.toLowerCase() === entry.toLowerCase());
  return {
    projects: visible.filter((project) => projectIds.length === 0 || projectIds.some((entry) => names(entry, project))),
    missing: projectIds.filter((entry) => !visible.some((project) => names(entry, project))),
  };
}
