import { Button, Link, Subtitle1, Text } from "@fluentui/react-components";
import { Component, type ReactNode } from "react";
import { type Operation, requirementsOf, useCurrentUser, useRoleAllows } from "../api/access.ts";
import { createHref } from "../parts/address.ts";
import { useStyles } from "./styles.ts";

/** An error boundary for one view. The navigation and the other views keep working. */
export class ViewBoundary extends Component<{ children: ReactNode }, { error?: unknown }> {
  override state: { error?: unknown } = {};
  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }
  override render(): ReactNode {
    return "error" in this.state ? <ViewFailed error={this.state.error} /> : this.props.children;
  }
}

/** The notice in place of a view that threw an error while it rendered. */
function ViewFailed({ error }: { error: unknown }) {
  const styles = useStyles();
  return (
    <div role="alert" className={styles.notice}>
      <Subtitle1 as="h1">Can't show this view</Subtitle1>
      <Text>{error instanceof Error ? error.message : "Unknown error. Reload the page."}</Text>
      <Button appearance="primary" onClick={() => location.reload()}>
        Reload page
      </Button>
    </div>
  );
}

/** The view of an address that no route matches. */
export function NoSuchView() {
  const styles = useStyles();
  return (
    <div className={styles.notice}>
      <Subtitle1 as="h1">Page not found</Subtitle1>
      <Link href={createHref("/")}>Go to the overview</Link>
    </div>
  );
}

/** Renders a view if the user's role can call the operation it needs. Otherwise names the roles that can. */
export function ForRoles({ needs, children }: { needs: Operation; children: ReactNode }) {
  const styles = useStyles();
  const { role } = useCurrentUser();
  const roleAllows = useRoleAllows();
  if (roleAllows(needs)) return children;
  return (
    <div className={styles.notice}>
      <Subtitle1 as="h1">Your role can't open this view</Subtitle1>
      <Text>
        Your role is {role}. Required: {requirementsOf(needs).roles.join(" or ")}. Ask an administrator for access.
      </Text>
      <Link href={createHref("/")}>Go to the overview</Link>
    </div>
  );
}
