"""All importers, registered in importer.OPS."""

import attention  # noqa: F401
import contractions  # noqa: F401
import control  # noqa: F401
import elementwise  # noqa: F401
import images  # noqa: F401
import recurrent  # noqa: F401
import reductions  # noqa: F401
import selections  # noqa: F401
import signals  # noqa: F401
import views  # noqa: F401
import windows  # noqa: F401
