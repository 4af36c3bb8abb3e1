"""`model/*`.

Source: App Server, "Threads and turns"; App Server notes, "Models, accounts".
"""

from knightcode.app_server.connection import Connection
from knightcode.app_server.core.pending import Call
from knightcode.app_server.wire.threads import model_to_wire
from knightcode_protocol import params, results
from knightcode_protocol.wire import Wire


def list_models(connection: Connection, call: Call, wanted: params.ModelListParams) -> Wire:
    """`model/list`: every chat model, in catalogue order."""
    catalogue = connection.manager.services.catalogue
    default = catalogue.default_model()
    return results.ModelListResult(
        models=tuple(
            model_to_wire(
                model,
                available=catalogue.available(model),
                is_default=default is not None and model.key == default.key,
            )
            for model in catalogue.models
        )
    )
