import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, PagedTable } from "../../parts/paged-table.tsx";

/** The projects that the service's identity can read, and the selection of projects to scan. */
export function Projects({ now: { projectIds, etag } }: { now: Schemas["DevopsSettings"] }) {
  const query = { limit: 100 };
  const list = api.useInfiniteQuery(
    "get",
    "/api/settings/integrations/devops/projects",
    { params: { query } },
    BY_CURSOR,
  );
  const projects = list.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <>
      <Text weight="semibold">
        {projectIds.length === 0 ? "All projects are scanned" : "Selected projects are scanned"}
      </Text>
      <PagedTable
        of={list}
        columns={[
          { title: "Project", cell: ({ name }) => name },
          { title: "Scanned", cell: ({ selected }) => (selected ? "Yes" : "No") },
        ]}
        keyOf={({ id }) => id}
        label="Projects"
        empty="No projects. Add the service's identity to a project in Azure DevOps."
      />
      <div>
        <Operate
          operation="putDevopsProjects"
          title="Select projects"
          action="Save"
          submit={(form, put) =>
            put({
              params: { header: { "If-Match": etag } },
              body: { projectIds: form.has("all") ? [] : form.getAll("project").map(String) },
            })
          }
        >
          <CheckField name="all" label="All projects, including future ones" defaultChecked={projectIds.length === 0} />
          {projects.map(({ id, name, selected }) => (
            <CheckField
              key={id}
              name="project"
              value={id}
              label={name}
              defaultChecked={selected && projectIds.length > 0}
            />
          ))}
        </Operate>
      </div>
    </>
  );
}
