import {
  Button,
  Dialog,
  DialogActions,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  Text,
} from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { type FinishedChange, onChangeFinished } from "../api/events.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";

/** Shows the results of changes whose form was closed before the response arrived. */
export function FinishedChanges() {
  const [all, set] = useState<FinishedChange[]>([]);
  useEffect(() => onChangeFinished((one) => set((before) => [...before, one])), []);
  const [first, ...others] = all;
  return (
    <Dialog modalType="alert" open={first !== undefined}>
      <DialogSurface>
        {first && (
          <DialogBody>
            <DialogTitle>{first.title}</DialogTitle>
            <DialogContent>
              {first.problem ? (
                <ProblemNotice problem={first.problem} />
              ) : (
                <Text block>The form was closed, but the change was already sent. It is now complete.</Text>
              )}
              {first.outcome}
            </DialogContent>
            <DialogActions>
              <Button appearance="primary" onClick={() => set(others)}>
                Close
              </Button>
            </DialogActions>
          </DialogBody>
        )}
      </DialogSurface>
    </Dialog>
  );
}
